import java.util.Properties;
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
 * Flink, exactly once: upper-case from one topic to another, in one process with two slots. Runs until it is killed.
 * Arguments: servers, input topic, output topic, prefix of transactional ids, checkpoint interval in milliseconds,
 * checkpoint directory.
 */
public final class FlinkCopy {
    private static final TypeInformation<Tuple2<byte[], byte[]>> PAIR =
            new TupleTypeInfo<>(
                    PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO,
                    PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO);

    public static void main(String[] args) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.dir", "file://" + args[5]);
        settings.setString("pipeline.object-reuse", "true");
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        flink.enableCheckpointing(Long.parseLong(args[4]));

        KafkaSource<Tuple2<byte[], byte[]>> source =
                KafkaSource.<Tuple2<byte[], byte[]>>builder()
                        .setBootstrapServers(args[0])
                        .setTopics(args[1])
                        .setGroupId(args[3])
                        .setStartingOffsets(OffsetsInitializer.earliest())
                        .setDeserializer(new Pairs())
                        .setProperty("isolation.level", "read_committed")
                        .setProperty("max.poll.records", "10000")
                        .build();
        Properties producer = new Properties();
        producer.put("transaction.timeout.ms", "60000");
        producer.put("batch.size", Integer.toString(256 << 10));
        producer.put("linger.ms", "5");
        KafkaSink<Tuple2<byte[], byte[]>> sink =
                KafkaSink.<Tuple2<byte[], byte[]>>builder()
                        .setBootstrapServers(args[0])
                        .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                        .setTransactionalIdPrefix(args[3])
                        .setKafkaProducerConfig(producer)
                        .setRecordSerializer(new Records(args[2]))
                        .build();
        flink.fromSource(source, WatermarkStrategy.noWatermarks(), "in")
                .map(pair -> Tuple2.of(pair.f0, upper(pair.f1)))
                .returns(PAIR)
                .sinkTo(sink);
        flink.execute();
    }

    private static byte[] upper(byte[] value) {
        byte[] result = new byte[value.length];
        for (int i = 0; i < value.length; i++) {
            byte b = value[i];
            result[i] = b >= 'a' && b <= 'z' ? (byte) (b - 32) : b;
        }
        return result;
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
