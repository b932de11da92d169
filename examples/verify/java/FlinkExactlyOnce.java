import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Optional;
import java.util.Properties;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.typeutils.TupleTypeInfo;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Flink with an exactly-once Kafka sink, one topic into another, on a cluster of this process. Runs until it is killed;
 * a new start goes on from the newest checkpoint of the same name, as a deployment of Flink does.
 * Arguments: servers, input topic, output topic, name, directory for checkpoints.
 */
public final class FlinkExactlyOnce {
    private static final TypeInformation<Tuple2<byte[], byte[]>> PAIR =
            new TupleTypeInfo<>(
                    PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO,
                    PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO);

    public static void main(String[] args) throws Exception {
        Path checkpoints = Path.of(args[4], args[3]);
        Files.createDirectories(checkpoints);
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.dir", checkpoints.toUri().toString());
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        settings.setString("execution.checkpointing.min-pause", "100ms");
        settings.setString("pipeline.object-reuse", "true"); // without it a record with a null key cannot be copied
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "1000000");
        settings.setString("restart-strategy.fixed-delay.delay", "300ms");
        newest(checkpoints)
                .ifPresent(path -> settings.setString("execution.state-recovery.path", path.toUri().toString()));
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        flink.enableCheckpointing(300);

        KafkaSource<Tuple2<byte[], byte[]>> source =
                KafkaSource.<Tuple2<byte[], byte[]>>builder()
                        .setBootstrapServers(args[0])
                        .setTopics(args[1])
                        .setGroupId(args[3])
                        .setStartingOffsets(OffsetsInitializer.earliest())
                        .setDeserializer(new Pairs())
                        .setProperty("isolation.level", "read_committed")
                        .setProperty("partition.discovery.interval.ms", "1000")
                        .build();
        Properties producer = new Properties();
        producer.put("transaction.timeout.ms", "10000");
        KafkaSink<Tuple2<byte[], byte[]>> sink =
                KafkaSink.<Tuple2<byte[], byte[]>>builder()
                        .setBootstrapServers(args[0])
                        .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                        .setTransactionalIdPrefix(args[3])
                        .setKafkaProducerConfig(producer)
                        .setRecordSerializer(new Records(args[2]))
                        .build();
        flink.fromSource(source, WatermarkStrategy.noWatermarks(), "in").uid("in").sinkTo(sink).uid("out");
        flink.execute(args[3]);
    }

    /** The newest checkpoint that is complete, of whichever earlier start. */
    private static Optional<Path> newest(Path checkpoints) throws IOException {
        try (Stream<Path> found = Files.walk(checkpoints)) {
            return found.filter(path -> path.getFileName().toString().equals("_metadata"))
                    .max(Comparator.comparingLong(path -> path.toFile().lastModified()))
                    .map(Path::getParent);
        }
    }

    private static final class Pairs implements KafkaRecordDeserializationSchema<Tuple2<byte[], byte[]>> {
        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Tuple2<byte[], byte[]>> out) {
            out.collect(Tuple2.of(record.key(), record.value()));
        }

        @Override
        public TypeInformation<Tuple2<byte[], byte[]>> getProducedType() {
            return PAIR;
        }
    }

    private static final class Records implements KafkaRecordSerializationSchema<Tuple2<byte[], byte[]>> {
        private final String topic;

        Records(String topic) {
            this.topic = topic;
        }

        @Override
        public ProducerRecord<byte[], byte[]> serialize(
                Tuple2<byte[], byte[]> pair, KafkaSinkContext context, Long timestamp) {
            return new ProducerRecord<>(topic, pair.f0, pair.f1);
        }
    }
}
