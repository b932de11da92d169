"""One file per Kafka API. The listing of this folder is what ApiVersions advertises.

Each file opens with key, versions and behaviour, and has

    API_KEY, MIN_VERSION, MAX_VERSION
    async def handle(broker, context, request)

`broker` is the `atonce.broker.broker.BrokerState`, `context` an `atonce.broker.context.Context`, `request` kio's
class of the request's version (times are timedeltas: `messages.milliseconds(request.timeout)`). The answer is
`context.reply(**fields)` with the field names of the newest version, nested values as plain dicts; `None` answers
nothing; `Later(future)` lets the connection's next request start before this one is answered.
"""
