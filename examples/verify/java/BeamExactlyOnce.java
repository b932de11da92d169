import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.beam.runners.flink.FlinkPipelineOptions;
import org.apache.beam.runners.flink.FlinkRunner;
import org.apache.beam.sdk.Pipeline;
import org.apache.beam.sdk.coders.ByteArrayCoder;
import org.apache.beam.sdk.coders.KvCoder;
import org.apache.beam.sdk.coders.NullableCoder;
import org.apache.beam.sdk.io.kafka.KafkaIO;
import org.apache.beam.sdk.options.PipelineOptionsFactory;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Apache Beam on its Flink runner, KafkaIO into KafkaIO with its exactly-once sink. Runs until it is killed; a new start
 * goes on from the newest checkpoint of the same name. Arguments: servers, input topic, output topic, name, directory
 * for checkpoints.
 */
public final class BeamExactlyOnce {
    public static void main(String[] args) throws Exception {
        Path checkpoints = Path.of(args[4], args[3]);
        Files.createDirectories(checkpoints);
        Path settings = Files.createTempDirectory("beam-flink-");
        Files.writeString(
                settings.resolve("flink-conf.yaml"),
                "state.backend.type: hashmap\n"
                        + "state.checkpoint-storage: filesystem\n"
                        + "state.checkpoints.dir: " + checkpoints.toUri() + "\n"
                        + "execution.checkpointing.externalized-checkpoint-retention: RETAIN_ON_CANCELLATION\n"
                        + "restart-strategy.type: fixed-delay\n"
                        + "restart-strategy.fixed-delay.attempts: 1000000\n"
                        + "restart-strategy.fixed-delay.delay: 300ms\n");
        FlinkPipelineOptions options = PipelineOptionsFactory.create().as(FlinkPipelineOptions.class);
        options.setRunner(FlinkRunner.class);
        options.setFlinkMaster("[local]");
        options.setFlinkConfDir(settings.toString());
        options.setStreaming(true);
        options.setParallelism(2);
        options.setCheckpointingInterval(300L);
        options.setExternalizedCheckpointsEnabled(true);
        options.setRetainExternalizedCheckpointsOnCancellation(true);
        options.setJobName(args[3]);
        newest(checkpoints).ifPresent(path -> options.setSavepointPath(path.toUri().toString()));

        Pipeline pipeline = Pipeline.create(options);
        pipeline.apply(
                        "in",
                        KafkaIO.<byte[], byte[]>read()
                                .withBootstrapServers(args[0])
                                .withTopic(args[1])
                                .withKeyDeserializerAndCoder(
                                        ByteArrayDeserializer.class, NullableCoder.of(ByteArrayCoder.of()))
                                .withValueDeserializerAndCoder(
                                        ByteArrayDeserializer.class, NullableCoder.of(ByteArrayCoder.of()))
                                .withReadCommitted()
                                .withConsumerConfigUpdates(
                                        Map.of("auto.offset.reset", "earliest", "group.id", args[3]))
                                .withoutMetadata())
                .setCoder(KvCoder.of(NullableCoder.of(ByteArrayCoder.of()), NullableCoder.of(ByteArrayCoder.of())))
                .apply(
                        "out",
                        KafkaIO.<byte[], byte[]>write()
                                .withBootstrapServers(args[0])
                                .withTopic(args[2])
                                .withKeySerializer(ByteArraySerializer.class)
                                .withValueSerializer(ByteArraySerializer.class)
                                .withEOS(2, args[3] + "-sink"));
        pipeline.run().waitUntilFinish();
    }

    /** The newest checkpoint that is complete, of whichever earlier start. */
    private static Optional<Path> newest(Path checkpoints) throws IOException {
        try (Stream<Path> found = Files.walk(checkpoints)) {
            return found.filter(path -> path.getFileName().toString().equals("_metadata"))
                    .max(Comparator.comparingLong(path -> path.toFile().lastModified()))
                    .map(Path::getParent);
        }
    }
}
