import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Kafka Streams, exactly_once_v2: upper-case from one topic to another. Runs until it is killed. Arguments: servers,
 * input topic, output topic, application id, commit interval in milliseconds, state directory.
 */
public final class StreamsCopy {
    public static void main(String[] args) throws InterruptedException {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("application.id", args[3]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", args[4]);
        settings.put("state.dir", args[5]);
        settings.put("num.stream.threads", "2");
        settings.put("replication.factor", "-1");
        settings.put("consumer.auto.offset.reset", "earliest");
        settings.put("consumer.max.poll.records", "10000");
        settings.put("producer.batch.size", Integer.toString(256 << 10));
        settings.put("producer.linger.ms", "5");

        StreamsBuilder topology = new StreamsBuilder();
        topology.stream(args[1], Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
                .mapValues(StreamsCopy::upper)
                .to(args[2], Produced.with(Serdes.ByteArray(), Serdes.ByteArray()));
        KafkaStreams streams = new KafkaStreams(topology.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(java.time.Duration.ofSeconds(5))));
        streams.start();
        Thread.currentThread().join();
    }

    private static byte[] upper(byte[] value) {
        byte[] result = new byte[value.length];
        for (int i = 0; i < value.length; i++) {
            byte b = value[i];
            result[i] = b >= 'a' && b <= 'z' ? (byte) (b - 32) : b;
        }
        return result;
    }
}
