"""A client certificate's name, as Java writes it: ACLs name users by it."""

from __future__ import annotations

import pytest

from atonce.broker.tls import distinguished_name


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        (((("commonName", "etl"),),), "CN=etl"),
        (
            ((("countryName", "DE"),), (("organizationName", "Ex, Inc."),), (("commonName", "etl"),)),
            r"CN=etl,O=Ex\, Inc.,C=DE",
        ),
        (((("userId", "u"), ("commonName", "c")),), "UID=u+CN=c"),
        (((("commonName", " #a "),),), r"CN=\ #a\ "),
        ((), ""),
    ],
)
def test_the_last_part_comes_first(subject: tuple[object, ...], name: str) -> None:
    assert distinguished_name({"subject": subject}) == name
