"""ACLs as clients meet them: a user sees and uses what is his."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from atonce.broker.users import Users
from tests.interop.secure.parts import PASSWORD, USER, SecureBroker

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[SecureBroker]:
    made = SecureBroker(("SASL_PLAINTEXT",), SETTINGS)
    Users(made.data).set_password("admin", PASSWORD)
    with made:
        admin = AdminClient(config(made, "admin"))
        for future in admin.create_topics([NewTopic("mine", 1, 1), NewTopic("theirs", 1, 1)]).values():
            future.result(20)
        for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
            allow(admin, kind, "mine")
        yield made


def config(broker: SecureBroker, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.servers_of("SASL_PLAINTEXT"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": PASSWORD,
    }


def allow(admin: AdminClient, kind: ResourceType, name: str) -> None:
    binding = AclBinding(
        kind, name, ResourcePatternType.PREFIXED, f"User:{USER}", "*", AclOperation.ALL, AclPermissionType.ALLOW
    )
    for future in admin.create_acls([binding]).values():
        future.result(20)


def test_a_user_sees_and_uses_what_is_his(broker: SecureBroker) -> None:
    mine = config(broker, USER)
    assert set(AdminClient(mine).list_topics(timeout=20).topics) == {"mine"}
    producer = Producer({**mine, "transactional.id": "mine-1"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("mine", b"hello")
    producer.commit_transaction(20)
    consumer = Consumer({**mine, "group.id": "mine-readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["mine"])
    message = consumer.poll(20)
    assert message is not None and message.value() == b"hello"
    consumer.close()


def test_what_is_not_his_is_refused_by_kafkas_errors(broker: SecureBroker) -> None:
    mine = config(broker, USER)
    failed: list[str] = []
    producer = Producer(mine)
    producer.produce("theirs", b"x", on_delivery=lambda error, _: failed.append(error.name()))
    producer.flush(20)
    assert failed == ["TOPIC_AUTHORIZATION_FAILED"]
    with pytest.raises(KafkaException, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        Producer({**mine, "transactional.id": "theirs"}).init_transactions(20)
    consumer = Consumer({**mine, "group.id": "theirs"})
    consumer.subscribe(["mine"])
    with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
        message = consumer.poll(20)
        raise KafkaException(message.error())
    consumer.close()
    admin = AdminClient(mine)
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        admin.create_topics([NewTopic("other", 1, 1)])["other"].result(20)
    with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        allow(admin, ResourceType.TOPIC, "theirs")


def test_acls_outlive_a_kill(broker: SecureBroker) -> None:
    broker.kill()
    broker.start()
    assert set(AdminClient(config(broker, USER)).list_topics(timeout=20).topics) == {"mine"}
