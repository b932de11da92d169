import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Kafka Streams with processing.guarantee=exactly_once_v2, one topic into another. Runs until it is killed.
 * Arguments: servers, input topic, output topic, application id.
 */
public final class StreamsExactlyOnce {
    public static void main(String[] args) throws Exception {
        Path state = Files.createTempDirectory("streams-");
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("application.id", args[3]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", "300");
        settings.put("state.dir", state.toString());
        settings.put("replication.factor", "-1");
        settings.put("consumer.auto.offset.reset", "earliest");
        settings.put("consumer.session.timeout.ms", "6000");
        settings.put("consumer.heartbeat.interval.ms", "1000");
        settings.put("producer.transaction.timeout.ms", "10000");

        StreamsBuilder topology = new StreamsBuilder();
        topology.stream(args[1], Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
                .to(args[2], Produced.with(Serdes.ByteArray(), Serdes.ByteArray()));
        KafkaStreams streams = new KafkaStreams(topology.build(), settings);
        // As its documentation advises for errors that pass: a thread that died is replaced.
        streams.setUncaughtExceptionHandler(error -> StreamThreadExceptionResponse.REPLACE_THREAD);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(java.time.Duration.ofSeconds(5))));
        streams.start();
        Thread.currentThread().join();
    }
}
