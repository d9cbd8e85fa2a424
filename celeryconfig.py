"""Celery's configuration: where the broker is, which queues exist, what a message may be.

Celery is transport only; PostgreSQL holds the truth (docs/architecture.md). So there is no result
backend, a message is acknowledged after its work, and a lost one is swept up from the database.
"""

from kombu import Queue

from retrieval.process import process_services
from retrieval.settings import load_settings
from retrieval.work import messages

_settings = load_settings()

broker_url = process_services(_settings).broker_url
broker_connection_retry_on_startup = True
broker_connection_max_retries = None  # a broker that is away for a day is still waited for
broker_transport_options = {
    # Redelivery by the broker is the slow second net; leases in PostgreSQL are the first. It only
    # has to be longer than a retry's pause: work delivered twice finds its row leased, or done.
    "visibility_timeout": max(300, 5 * _settings.lease_seconds),
    "socket_connect_timeout": 5,
    "socket_keepalive": True,
    # Kombu's default, written down because foreign senders use it: a worker with other steps would
    # never look into their lists. All queues of a step are served before the next step.
    "priority_steps": [0, 3, 6, 9],
}
# What a task sends on is as urgent as itself; `retrieval.tasks.send` lets large searches wait.
task_inherit_parent_priority = True
# A command whose broker is away says so after seconds; its work is in PostgreSQL already.
task_publish_retry_policy = {"max_retries": 2, "interval_start": 0, "interval_step": 0.5}

imports = ("retrieval.work.journal", "retrieval.tasks", "vcl_plugin.tasks")

task_queues = [Queue(name.value) for name in messages.Queue]
task_default_queue = messages.Queue.MAINTENANCE.value
task_create_missing_queues = False
task_routes = {
    task: {"queue": route.queue.value}
    | ({} if route.priority is None else {"priority": route.priority})
    for task, route in messages.ROUTES.items()
}

# JSON only: a pickle from the broker would be code from the broker.
task_serializer = "json"
accept_content = ["json"]
worker_consumer = "retrieval.work.consumer:SturdyConsumer"
result_backend = None
task_ignore_result = True

# A process that hangs beats on: its lease does not run out. Killed, it does (not with `--gpu`,
# where the process that would kill is the one that hangs).
task_time_limit = _settings.task_seconds
task_acks_late = True
task_reject_on_worker_lost = True
worker_prefetch_multiplier = 1
# A child loads its models and replays the index before it says that it lives. Celery's default of
# four seconds would kill and restart it forever.
worker_proc_alive_timeout = 600
worker_hijack_root_logger = False
worker_cancel_long_running_tasks_on_connection_loss = False
