import java.io.FileInputStream;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Java's client with each file of settings in turn: what it saw, or the kind of its error, one line each. */
public final class Enter {
    public static void main(String[] args) throws Exception {
        String topic = args[0];
        for (String file : List.of(args).subList(1, args.length)) {
            Properties settings = new Properties();
            try (FileInputStream in = new FileInputStream(file)) {
                settings.load(in);
            }
            settings.put("default.api.timeout.ms", "20000");
            settings.put("request.timeout.ms", "10000");
            try (Admin admin = Admin.create(settings)) {
                admin.listTopics().names().get(20, TimeUnit.SECONDS);
                settings.put("key.serializer", StringSerializer.class.getName());
                settings.put("value.serializer", StringSerializer.class.getName());
                try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
                    producer.send(new ProducerRecord<>(topic, "k", file)).get(20, TimeUnit.SECONDS);
                }
                System.out.println(file + " in");
            } catch (Exception error) {
                Throwable cause = error.getCause() == null ? error : error.getCause();
                System.out.println(file + " " + cause.getClass().getSimpleName());
            }
        }
    }
}
