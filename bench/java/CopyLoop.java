import java.time.Duration;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The loop a careful Java programmer writes by hand: consume, upper-case, produce, offsets and output in one
 * transaction. Runs until it is killed. Arguments: servers, input topic, output topic, group, records per transaction,
 * and optionally the longest a transaction stays open in milliseconds.
 */
public final class CopyLoop {
    public static void main(String[] args) {
        String servers = args[0], input = args[1], output = args[2], group = args[3];
        int perTransaction = Integer.parseInt(args[4]);
        long longestMs = args.length > 5 ? Long.parseLong(args[5]) : 100;

        Properties read = new Properties();
        read.put("bootstrap.servers", servers);
        read.put("group.id", group);
        read.put("auto.offset.reset", "earliest");
        read.put("enable.auto.commit", "false");
        read.put("isolation.level", "read_committed");
        read.put("max.poll.records", Integer.toString(Math.min(perTransaction, 10_000)));
        read.put("max.partition.fetch.bytes", Integer.toString(4 << 20));
        read.put("fetch.max.bytes", Integer.toString(16 << 20));
        read.put("key.deserializer", ByteArrayDeserializer.class.getName());
        read.put("value.deserializer", ByteArrayDeserializer.class.getName());

        Properties write = new Properties();
        write.put("bootstrap.servers", servers);
        write.put("transactional.id", group);
        write.put("linger.ms", "5");
        write.put("batch.size", Integer.toString(256 << 10));
        write.put("buffer.memory", Integer.toString(128 << 20));
        write.put("key.serializer", ByteArraySerializer.class.getName());
        write.put("value.serializer", ByteArraySerializer.class.getName());

        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(read);
                KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(write)) {
            producer.initTransactions();
            consumer.subscribe(Collections.singletonList(input));
            Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
            int pending = 0;
            long opened = 0;
            while (true) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(pending > 0 ? 10 : 100));
                if (!records.isEmpty() && pending == 0) {
                    producer.beginTransaction();
                    opened = System.currentTimeMillis();
                }
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    byte[] value = upper(record.value());
                    producer.send(new ProducerRecord<>(output, null, record.timestamp(), record.key(), value));
                    ends.put(new TopicPartition(record.topic(), record.partition()),
                            new OffsetAndMetadata(record.offset() + 1));
                    pending++;
                }
                boolean late = pending > 0 && System.currentTimeMillis() - opened >= longestMs;
                if (pending >= perTransaction || late) {
                    producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
                    producer.commitTransaction();
                    ends.clear();
                    pending = 0;
                }
            }
        }
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
