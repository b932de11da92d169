import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What an ordinary Java program does with a broker; each line it prints is a fact that the test checks. */
public final class JavaClient {
    private static String servers;

    public static void main(String[] args) throws Exception {
        servers = args[0];
        String topic = args[1];
        try (Admin admin = Admin.create(settings())) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
            System.out.println("partitions " + admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic)
                    .partitions().size());
            transactions(topic);
            System.out.println("committed " + read(topic, "read_committed", "readers-1"));
            System.out.println("uncommitted " + read(topic, "read_uncommitted", "readers-2"));
            Map<TopicPartition, OffsetAndMetadata> offsets =
                    admin.listConsumerGroupOffsets("copier-" + topic).partitionsToOffsetAndMetadata().get();
            System.out.println("offset " + offsets.get(new TopicPartition(topic, 0)).offset());
            System.out.println("state " + admin.describeTransactions(List.of("java-" + topic)).all().get()
                    .get("java-" + topic).state());
        }
    }

    private static void transactions(String topic) throws Exception {
        try (KafkaProducer<String, String> producer = producer("java-" + topic)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "k", "first")).get();
            producer.send(new ProducerRecord<>(topic, "k", "second"));
            producer.sendOffsetsToTransaction(
                    Collections.singletonMap(new TopicPartition(topic, 0), new OffsetAndMetadata(2, "noted")),
                    new org.apache.kafka.clients.consumer.ConsumerGroupMetadata("copier-" + topic));
            producer.commitTransaction();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "k", "aborted")).get();
            producer.abortTransaction();
            // A second producer of the same id fences the first.
            try (KafkaProducer<String, String> second = producer("java-" + topic)) {
                second.initTransactions();
                second.beginTransaction();
                second.send(new ProducerRecord<>(topic, "k", "third"));
                second.commitTransaction();
                System.out.println("fenced " + fenced(producer, topic));
            }
        }
    }

    private static boolean fenced(KafkaProducer<String, String> producer, String topic) {
        try {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "k", "zombie")).get();
            producer.commitTransaction();
            return false;
        } catch (ProducerFencedException | InvalidProducerEpochException error) {
            return true;
        } catch (Exception error) {
            Throwable cause = error.getCause();
            return cause instanceof ProducerFencedException || cause instanceof InvalidProducerEpochException;
        }
    }

    private static List<String> read(String topic, String isolation, String group) {
        Properties settings = settings();
        settings.put("group.id", group + "-" + topic);
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", isolation);
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(Arrays.asList(topic));
            TopicPartition place = new TopicPartition(topic, 0);
            long deadline = System.currentTimeMillis() + 30_000;
            while (System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    values.add(record.value());
                }
                if (consumer.assignment().contains(place)
                        && consumer.position(place) >= consumer.endOffsets(List.of(place)).get(place)) {
                    break;
                }
            }
            consumer.commitSync();
        }
        return values;
    }

    private static KafkaProducer<String, String> producer(String transactionalId) {
        Properties settings = settings();
        settings.put("transactional.id", transactionalId);
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        return new KafkaProducer<>(settings);
    }

    private static Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        return settings;
    }
}
