"""The jars of Apache Kafka we run, each pinned by its checksum, so that nobody can hand us anything else."""

from __future__ import annotations

from dataclasses import dataclass

KAFKA_VERSION = "4.3.1"


@dataclass(frozen=True, slots=True)
class Pin:
    """One jar as Maven names it, and the SHA-256 of its bytes."""

    organisation: str
    name: str
    revision: str
    sha256: str
    classifier: str = ""

    @property
    def file(self) -> str:
        return "-".join(filter(None, [self.name, self.revision, self.classifier])) + ".jar"


@dataclass(frozen=True, slots=True)
class Bundle:
    """Jars that are fetched together and cached in one folder."""

    name: str
    pins: tuple[Pin, ...]


# The broker, its tools for formatting, the Java client, and a logger that writes to standard error.
KAFKA = Bundle(
    "kafka-4.3.1",
    (
        Pin("at.yawk.lz4", "lz4-java", "1.10.2", "252dabd586d22149a31661a8afc1a50747714eb1a298bd4a6e780c8c91a13866"),
        Pin(
            "com.dynatrace.hash4j",
            "hash4j",
            "0.22.0",
            "23028a3fd006e530bf495f551083208187cafd8f80624d048eba56442f16a50e",
        ),
        Pin(
            "com.fasterxml.jackson.core",
            "jackson-annotations",
            "2.21",
            "53ca085f4a150f703f49e1aabd935bd03b43e1ea3d55d135438292af22cef56b",
        ),
        Pin(
            "com.fasterxml.jackson.core",
            "jackson-core",
            "2.21.2",
            "12e8655b100267b44d0f14d01b1f5082a5105e616174dc4307be1a761e92407b",
        ),
        Pin(
            "com.fasterxml.jackson.core",
            "jackson-databind",
            "2.21.2",
            "8c982f01f148d805f0aaac2339011244757e0df7c6ff8951f2fa3f433b8ed849",
        ),
        Pin(
            "com.fasterxml.jackson.dataformat",
            "jackson-dataformat-csv",
            "2.21.2",
            "682f8c7977e02a42748426bf54946e32e52e2f80b84b6642801ab12bd541368a",
        ),
        Pin(
            "com.fasterxml.jackson.dataformat",
            "jackson-dataformat-yaml",
            "2.21.2",
            "d25551812fa0c14f37cabaa9401e63eadcea42ce36311183af5622d5bc8a1bc7",
        ),
        Pin(
            "com.fasterxml.jackson.datatype",
            "jackson-datatype-jdk8",
            "2.21.2",
            "e581bbf3fc5622d16b57366dd41e10fc56921fb202879de2ef487f87dd9b30e7",
        ),
        Pin(
            "com.github.ben-manes.caffeine",
            "caffeine",
            "3.2.0",
            "ec411dfdf0c03f25218648ce89861630b71680e5858a9a7278ebac8e55cab3d7",
        ),
        Pin(
            "com.github.luben",
            "zstd-jni",
            "1.5.6-10",
            "b6c3237e24b8252a5a9c3a0e1ae30ef8f323412e74bd358548b7a9e527d676df",
        ),
        Pin("com.google.re2j", "re2j", "1.8", "7b52c72156dd7f98b3237a5b35c1d34fba381b21048c89208913ad80a45dfbd7"),
        Pin(
            "com.typesafe.scala-logging",
            "scala-logging_2.13",
            "3.9.6",
            "0ad0c3f4d89d538b3b6c300158555e266aa69cf1b5f6522aba8b5bad238eb994",
        ),
        Pin(
            "com.yammer.metrics",
            "metrics-core",
            "2.2.0",
            "6b7a14a6f34c10f8683f7b5e2f39df0f07b58c7dff0e468ebbc713905c46979c",
        ),
        Pin(
            "commons-beanutils",
            "commons-beanutils",
            "1.11.0",
            "9e44ba68ec9a3f21286fa2a8bbb003b735c0f69101bb43144b79f4f8aaa74709",
        ),
        Pin(
            "commons-collections",
            "commons-collections",
            "3.2.2",
            "eeeae917917144a68a741d4c0dff66aa5c5c5fd85593ff217bced3fc8ca783b8",
        ),
        Pin(
            "commons-digester",
            "commons-digester",
            "2.1",
            "e0b2b980a84fc6533c5ce291f1917b32c507f62bcad64198fff44368c2196a3d",
        ),
        Pin(
            "commons-logging",
            "commons-logging",
            "1.3.5",
            "6d7a744e4027649fbb50895df9497d109f98c766a637062fe8d2eabbb3140ba4",
        ),
        Pin(
            "commons-validator",
            "commons-validator",
            "1.10.1",
            "ed74711a78d793ca37f6075e4a1e93d107233dfd20d0bb17e32bad88d38e56aa",
        ),
        Pin(
            "net.sf.jopt-simple",
            "jopt-simple",
            "5.0.4",
            "df26cc58f235f477db07f753ba5a3ab243ebe5789d9f89ecf68dd62ea9a66c28",
        ),
        Pin(
            "net.sourceforge.argparse4j",
            "argparse4j",
            "0.7.0",
            "65ceb669d88f63306c680f8088bbf765bbca72d288a61a03703000076c3d3f56",
        ),
        Pin(
            "org.apache.kafka",
            "kafka-clients",
            "4.3.1",
            "52501b7b47510c66f898871adaf6d2968ab7246561d44ced43643a8a587f0b36",
        ),
        Pin(
            "org.apache.kafka",
            "kafka-coordinator-common",
            "4.3.1",
            "66a86b8c89718216ffa72fe4e44b9d1bdf3472e4cb9200c36a0742a25febbdba",
        ),
        Pin(
            "org.apache.kafka",
            "kafka-group-coordinator-api",
            "4.3.1",
            "d81bc1a3739ff6c9b21815baae00022306342a16d3d94e6a2621201b9980a30d",
        ),
        Pin(
            "org.apache.kafka",
            "kafka-group-coordinator",
            "4.3.1",
            "4ab56d002e1624185c874199e9e0ffb243dbeb9f68b4d0cadf48ce2f617a1126",
        ),
        Pin(
            "org.apache.kafka",
            "kafka-metadata",
            "4.3.1",
            "4d73a96c6474a4ebdd67a1cee14da1a94cfd6bb9e6e252685ba5667d8ab7f898",
        ),
        Pin(
            "org.apache.kafka",
            "kafka-raft",
            "4.3.1",
            "46abbf89806dd22d848e997cdfb1431524cab4ec88e38a7d2806e20b24a70609",
        ),
        Pin(
            "org.apache.kafka",
            "kafka-server-common",
            "4.3.1",
            "d7c719f749579a399011f0df7414de8a78f10f074a6122caa550fdb141351575",
        ),
        Pin(
            "org.apache.kafka",
            "kafka-server",
            "4.3.1",
            "01d736599ec3b0cdbb0480c15219170b28cdae189785e7f0c6f1f26e528eaebc",
        ),
        Pin(
            "org.apache.kafka",
            "kafka-share-coordinator",
            "4.3.1",
            "8ceeed7346127e652ea5c650b217890aaff14919f967d27fadce420745bd3066",
        ),
        Pin(
            "org.apache.kafka",
            "kafka-storage-api",
            "4.3.1",
            "bc2b22639fa554494461d101d599e01bae840d97c4f46e18fdf3d2fe41a47098",
        ),
        Pin(
            "org.apache.kafka",
            "kafka-storage",
            "4.3.1",
            "97e3facddd2914a58f28ec91ef35f8da69963eab3651196e97f487924f6dac98",
        ),
        Pin(
            "org.apache.kafka",
            "kafka-tools-api",
            "4.3.1",
            "dcf6785742e0c8ab11a0fc09c62f1192e11e997dc629669a8db82aa40d933c31",
        ),
        Pin(
            "org.apache.kafka",
            "kafka-transaction-coordinator",
            "4.3.1",
            "c64aaa2a88d8fd382c4800204872917686e542043c7916c9e8797d939d8eb313",
        ),
        Pin(
            "org.apache.kafka",
            "kafka_2.13",
            "4.3.1",
            "b098abef5ff878e76f60cd6c559b9baa5663ccb1b55f2837558b22c329d32423",
        ),
        Pin(
            "org.apache.logging.log4j",
            "log4j-api",
            "2.25.4",
            "c4b642a7f047275215de117e0e3847eb2c7711d84a0aa7433e7b3c096daf341d",
        ),
        Pin(
            "org.apache.logging.log4j",
            "log4j-core",
            "2.25.4",
            "10fee2c0485d54fa44ee75d314f6295508f7b932281873db61a91b88073200e6",
        ),
        Pin("org.bitbucket.b_c", "jose4j", "0.9.6", "7314af50cde9c99e8eaf43eee617a23edcc6bb43036221064355094999d837ef"),
        Pin(
            "org.hdrhistogram",
            "HdrHistogram",
            "2.2.2",
            "22d1d4316c4ec13a68b559e98c8256d69071593731da96136640f864fa14fad8",
        ),
        Pin("org.jspecify", "jspecify", "1.0.0", "1fad6e6be7557781e4d33729d49ae1cdc8fdda6fe477bb0cc68ce351eafdfbab"),
        Pin(
            "org.pcollections",
            "pcollections",
            "4.0.2",
            "2bbeef5797a241300c4f7513cd546239629ed7deda4fc0c31df90bb95f5f13ef",
        ),
        Pin(
            "org.scala-lang",
            "scala-library",
            "2.13.18",
            "4e85d96ff7bc7dc627985523c3541b9917aaa08e956391380c42db21a2c4e5a0",
        ),
        Pin(
            "org.scala-lang",
            "scala-reflect",
            "2.13.18",
            "6935ff1982b2ac93d695f15aa66921be2f602921277afe002f018fd8c7d6e29b",
        ),
        Pin("org.slf4j", "slf4j-api", "1.7.36", "d3ef575e3e4979678dc01bf1dcce51021493b4d11fb7f1be8ad982877c16a1c0"),
        Pin(
            "org.xerial.snappy",
            "snappy-java",
            "1.1.10.7",
            "4c766cb3f855415ee734b2392949a0b6f12a60879334a74518deaf6270d32e36",
        ),
        Pin("org.yaml", "snakeyaml", "2.5", "e6682acf1ace77508ef13649cbf4f8d09d2cf5457bdb61d25ffb6ac0233d78dd"),
        Pin("org.slf4j", "slf4j-simple", "1.7.36", "2f39bed943d624dfa8f4102d0571283a10870b6aa36f197a8a506f147010c10f"),
    ),
)

# Kafka's command-line tools (console producer and consumer, kafka-transactions …). Needs KAFKA beside it.
TOOLS = Bundle(
    "kafka-tools-4.3.1",
    (
        Pin(
            "org.apache.kafka",
            "kafka-tools",
            "4.3.1",
            "62f3c5dd7aa3442d4c5bc6a95f86e2502178ea09de8e27f74d9563bf955e253c",
        ),
    ),
)

# Kafka Streams, for interoperability tests and benchmarks. Needs KAFKA beside it.
STREAMS = Bundle(
    "kafka-streams-4.3.1",
    (
        Pin(
            "org.apache.kafka",
            "kafka-streams",
            "4.3.1",
            "bd73f3805e116f711e8456ee89a8a5b43ff5dcf5a5bb865afae29deae89e7c4b",
        ),
        Pin("org.rocksdb", "rocksdbjni", "10.1.3", "e7f925287d9fe2574fb7c7a86f7facaa9b8ab602a2eed0e598bf633528121498"),
    ),
)

# Kafka's own remote storage for its tests: tiered storage whose second tier is a directory.
TIERED = Bundle(
    "kafka-tiered-4.3.1",
    (
        Pin(
            "org.apache.kafka",
            "kafka-storage",
            "4.3.1",
            "f3236936854c13815ffaa7f35a3f2d6861c125616cba5395b538b8680dded886",
            "test",
        ),
    ),
)

# Spark's own Kafka connector, which the benchmark compares with. Its token provider 4.2.0 was never published.
SPARK_CONNECTOR = Bundle(
    "spark-kafka-4.2.0",
    (
        Pin(
            "org.apache.commons",
            "commons-pool2",
            "2.13.1",
            "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
        ),
        Pin(
            "org.apache.kafka",
            "kafka-clients",
            "3.9.2",
            "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
        ),
        Pin(
            "org.apache.spark",
            "spark-sql-kafka-0-10_2.13",
            "4.2.0",
            "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
        ),
        Pin(
            "org.apache.spark",
            "spark-token-provider-kafka-0-10_2.13",
            "4.1.0-preview1",
            "ab6e27a8a47ce63348dd0ecbd5543dc6212b4783180305cde5749e79684ea97b",
        ),
    ),
)
