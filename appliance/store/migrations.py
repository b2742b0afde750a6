"""The database's tables as numbered migrations, each applied once and in its own transaction.

`store.released_migrations` holds the first ones.

Append-only: a migration that has been released never changes. Each statement stands alone, because a
multi-statement string stops at its first row. STRICT tables everywhere; AUTOINCREMENT where full text
or changesets refer to a row. The writer of each table is named in its comment; `store` runs this.
"""

from appliance.store.released_migrations import RELEASED

APPLICATION_ID = 0x4F574C42  # "OWLB", in the file's header
# Tables whose changes are recorded per run, so that a run can be taken back.
UNDOABLE = ("entries", "blobs", "tasks", "task_deps", "schedules")
# Columns of those that follow from the rest: a change of them keeps nothing from being taken back.
DERIVED = ("indexed_ms", "open_blockers")
# What brings them in line after rows were brought back in any order.
SETTLING = (
    """UPDATE tasks SET open_blockers = n.open FROM (
        SELECT t.id, (SELECT COUNT(*) FROM task_deps d LEFT JOIN tasks b ON b.id = d.blocker
            WHERE d.task = t.id AND b.status IS NOT 'complete') AS open FROM tasks t) AS n
    WHERE tasks.id = n.id AND tasks.open_blockers <> n.open""",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    *RELEASED,
    (  # roles: delegations and jobs
        # A column's CHECK goes with its column: the same column again, with one word more.
        """ALTER TABLE runs ADD COLUMN sort TEXT NOT NULL DEFAULT 'chat' CHECK (sort IN ('chat', 'ask', 'tick', 'child'))""",
        "UPDATE runs SET sort = kind",
        "ALTER TABLE runs DROP COLUMN kind",
        "ALTER TABLE runs RENAME COLUMN sort TO kind",
        # writer: handoffs
        """CREATE TABLE jobs (
            id TEXT PRIMARY KEY,
            tool TEXT NOT NULL,
            role TEXT NOT NULL,
            task TEXT NOT NULL,
            given TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(given)),
            session TEXT NOT NULL,
            parent TEXT REFERENCES runs(id) ON DELETE CASCADE,
            run TEXT REFERENCES runs(id) ON DELETE SET NULL,
            priority TEXT NOT NULL CHECK (priority IN ('normal', 'background')),
            status TEXT NOT NULL CHECK (status IN ('waiting', 'running', 'done', 'failed', 'cancelled')),
            outcome TEXT NOT NULL DEFAULT '',
            result TEXT NOT NULL DEFAULT '',
            is_told INTEGER NOT NULL DEFAULT 0,
            attempts INTEGER NOT NULL DEFAULT 0,
            process TEXT NOT NULL DEFAULT '',
            correlation TEXT NOT NULL DEFAULT '',
            created_ms INTEGER NOT NULL,
            started_ms INTEGER,
            ended_ms INTEGER
        ) STRICT""",
        "CREATE INDEX jobs_open ON jobs(id) WHERE status IN ('waiting', 'running')",
        "CREATE INDEX jobs_of ON jobs(parent)",
        "CREATE INDEX jobs_run ON jobs(run)",
    ),
    (  # time: schedules, firings, notifications
        # writer: schedules
        """CREATE TABLE schedules (
            id INTEGER PRIMARY KEY,
            name TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
            description TEXT NOT NULL DEFAULT '',
            frequency TEXT NOT NULL DEFAULT '',
            kind TEXT NOT NULL CHECK (kind IN ('cron', 'interval', 'once', 'cadence', 'text')),
            spec TEXT NOT NULL,
            zone TEXT NOT NULL,
            condition TEXT NOT NULL DEFAULT '',
            act TEXT NOT NULL CHECK (act IN ('message', 'tasks', 'prompt', 'reminder', 'system')),
            details TEXT NOT NULL DEFAULT '{}' CHECK (json_type(details) = 'object'),
            type TEXT NOT NULL CHECK (type IN ('heartbeat', 'scheduled', 'system')),
            mode TEXT NOT NULL CHECK (mode IN ('session', 'isolated', 'silent')),
            is_enabled INTEGER NOT NULL DEFAULT 1 CHECK (is_enabled IN (0, 1)),
            person TEXT NOT NULL DEFAULT '',
            context TEXT NOT NULL DEFAULT '',
            session TEXT NOT NULL DEFAULT '',
            source TEXT NOT NULL DEFAULT '',
            role TEXT NOT NULL DEFAULT '',
            channel TEXT NOT NULL DEFAULT '',
            on_success INTEGER NOT NULL DEFAULT 1 CHECK (on_success IN (0, 1)),
            on_failure INTEGER NOT NULL DEFAULT 1 CHECK (on_failure IN (0, 1)),
            metadata TEXT NOT NULL DEFAULT '{}' CHECK (json_type(metadata) = 'object'),
            created_by TEXT NOT NULL DEFAULT 'user' CHECK (created_by IN ('user', 'system')),
            key TEXT UNIQUE,
            hash TEXT NOT NULL DEFAULT '',
            created_ms INTEGER NOT NULL,
            updated_ms INTEGER NOT NULL
        ) STRICT""",
        # What follows from them and the clock; kept apart, so that undo need not know of it.
        """CREATE TABLE schedule_state (
            id INTEGER PRIMARY KEY,
            rule TEXT NOT NULL,
            next_ms INTEGER,
            last_run_ms INTEGER,
            last_due_ms INTEGER,
            failures INTEGER NOT NULL DEFAULT 0,
            halt TEXT NOT NULL DEFAULT '' CHECK (halt IN ('', 'completed', 'failed', 'failures')),
            claimed_by TEXT,
            claimed_ms INTEGER,
            said TEXT NOT NULL DEFAULT ''
        ) STRICT""",
        """CREATE TABLE firings (
            schedule INTEGER NOT NULL,
            due_ms INTEGER NOT NULL,
            fired_ms INTEGER NOT NULL,
            process TEXT NOT NULL,
            status TEXT NOT NULL CHECK (status IN ('running', 'done', 'failed', 'skipped', 'not due')),
            outcome TEXT NOT NULL DEFAULT '',
            ended_ms INTEGER,
            PRIMARY KEY (schedule, due_ms)
        ) STRICT, WITHOUT ROWID""",
    ),
    (  # servers: tools of servers, as they were last listed
        # writer: offers
        """CREATE TABLE server_offers (
            server TEXT PRIMARY KEY,
            key TEXT NOT NULL,
            listed_ms INTEGER NOT NULL,
            about TEXT NOT NULL CHECK (json_valid(about)),
            error TEXT NOT NULL DEFAULT '',
            has_login INTEGER NOT NULL DEFAULT 0 CHECK (has_login IN (0, 1))
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE server_tools (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            server TEXT NOT NULL REFERENCES server_offers(server) ON DELETE CASCADE,
            name TEXT NOT NULL,
            title TEXT NOT NULL,
            description TEXT NOT NULL,
            schema TEXT NOT NULL CHECK (json_valid(schema)),
            hints TEXT NOT NULL CHECK (json_valid(hints)),
            embedder TEXT,
            vector BLOB,
            UNIQUE (server, name)
        ) STRICT""",
        """CREATE VIRTUAL TABLE server_words USING fts5(
            name, text, content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2'
        )""",
        "CREATE TRIGGER server_tools_removed AFTER DELETE ON server_tools BEGIN DELETE FROM server_words WHERE rowid = old.id; END",
    ),
    (  # taint: marks and grants
        # writer: marks
        """CREATE TABLE marks (
            subject TEXT NOT NULL,
            origin TEXT NOT NULL,
            source TEXT NOT NULL DEFAULT '',
            seq INTEGER NOT NULL DEFAULT 0,
            at_ms INTEGER NOT NULL,
            PRIMARY KEY (subject, origin, source) ON CONFLICT IGNORE
        ) STRICT, WITHOUT ROWID""",
        """INSERT INTO marks (subject, origin, seq, at_ms)
        SELECT 'run:' || r.id, o.key, o.value, r.updated_ms FROM runs r, json_each(r.metadata, '$.origins') o""",
        # A run says itself from where it is marked, and since which of its events.
        """CREATE TRIGGER runs_marked AFTER INSERT ON marks WHEN new.subject LIKE 'run:%' BEGIN
            UPDATE runs SET metadata = json_insert(metadata, '$.origins."' || new.origin || '"', new.seq)
            WHERE id = substr(new.subject, 5);
        END""",
        "CREATE TRIGGER runs_gone AFTER DELETE ON runs BEGIN DELETE FROM marks WHERE subject = 'run:' || old.id; END",
        # What a marked run writes is marked; entries of runs belong to them anyway.
        """CREATE TRIGGER entries_marked AFTER INSERT ON entries WHEN new.run IS NOT NULL AND new.scope NOT LIKE 'run:%' BEGIN
            INSERT INTO marks (subject, origin, source, at_ms)
            SELECT 'entry:' || new.id, origin, source, new.updated_ms FROM marks WHERE subject = 'run:' || new.run;
        END""",
        """CREATE TRIGGER entries_marked_again AFTER UPDATE OF path, title, body, description ON entries
        WHEN new.run IS NOT NULL AND new.scope NOT LIKE 'run:%' BEGIN
            INSERT INTO marks (subject, origin, source, at_ms)
            SELECT 'entry:' || new.id, origin, source, new.updated_ms FROM marks WHERE subject = 'run:' || new.run;
        END""",
        """CREATE TRIGGER tasks_marked AFTER INSERT ON tasks WHEN new.origin <> '' BEGIN
            INSERT INTO marks (subject, origin, source, at_ms)
            SELECT 'task:' || new.id, origin, source, new.created_ms FROM marks WHERE subject = 'run:' || new.origin;
        END""",
        # writer: grants
        """CREATE TABLE grants (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            person TEXT NOT NULL,
            kind TEXT NOT NULL,
            target TEXT NOT NULL,
            origins TEXT NOT NULL CHECK (json_type(origins) = 'array'),
            made_by TEXT NOT NULL,
            made_ms INTEGER NOT NULL,
            expires_ms INTEGER NOT NULL,
            revoked_ms INTEGER
        ) STRICT""",
        "CREATE INDEX grants_open ON grants(person) WHERE revoked_ms IS NULL",
    ),
    (  # notifications: letters that wait for a better time, and who wants to hear of nothing for a while
        "ALTER TABLE outbox ADD COLUMN held_ms INTEGER",
        # writer: quiet
        "CREATE TABLE mutes (context TEXT PRIMARY KEY, until_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    ),
    (  # whose an entry is: what a run wrote belongs to its person or group, '' to the house
        "ALTER TABLE entries ADD COLUMN audience TEXT NOT NULL DEFAULT ''",
        """UPDATE entries SET audience = COALESCE(
            (SELECT s.context FROM runs r JOIN sessions s ON s.id = r.session WHERE r.id = entries.run), '')
        WHERE run IS NOT NULL""",
    ),
    ("ALTER TABLE schedule_state ADD COLUMN counted_ms INTEGER",),  # what the clock showed when next_ms was counted
    (  # notifications in a thread that their person has not been shown yet
        "ALTER TABLE outbox ADD COLUMN seen_ms INTEGER",
        "UPDATE outbox SET seen_ms = ended_ms WHERE status = 'sent'",
        "CREATE INDEX outbox_unseen ON outbox(person, id) WHERE status = 'sent' AND via = 'local' AND seen_ms IS NULL",
    ),
    (  # which text of a skill is trusted, where it came from, how often it was used; owner '' for everybody's
        # writer: skill_records
        """CREATE TABLE skills (
            owner TEXT NOT NULL,
            name TEXT NOT NULL,
            trusted_hash TEXT NOT NULL DEFAULT '',
            trusted_by TEXT NOT NULL DEFAULT '',
            source TEXT NOT NULL DEFAULT '',
            uses INTEGER NOT NULL DEFAULT 0,
            used_ms INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (owner, name)
        ) STRICT, WITHOUT ROWID""",
    ),
    (  # people: who is known by name, who is in which group, and to whom the addresses of channels belong
        # writer: people
        """CREATE TABLE persons (
            name TEXT PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 128),
            created_ms INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE groups (
            name TEXT PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 128),
            created_ms INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE members (
            person TEXT NOT NULL REFERENCES persons(name) ON DELETE CASCADE,
            group_name TEXT NOT NULL REFERENCES groups(name) ON DELETE CASCADE,
            PRIMARY KEY (person, group_name)
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE identities (
            channel TEXT NOT NULL,
            address TEXT NOT NULL,
            person TEXT NOT NULL REFERENCES persons(name) ON DELETE CASCADE,
            reply TEXT NOT NULL DEFAULT '{}' CHECK (json_type(reply) = 'object'),
            linked_ms INTEGER NOT NULL,
            PRIMARY KEY (channel, address)
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX identities_of ON identities(person)",
    ),
    (  # logins from other machines: of tokens and invites the SHA-256, of passwords the scrypt
        # writer: logins
        """CREATE TABLE logins (
            id TEXT PRIMARY KEY,
            person TEXT NOT NULL REFERENCES persons(name) ON DELETE CASCADE,
            token_hash BLOB NOT NULL UNIQUE,
            agent TEXT NOT NULL,
            address TEXT NOT NULL,
            created_ms INTEGER NOT NULL,
            seen_ms INTEGER NOT NULL,
            expires_ms INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX logins_of ON logins(person)",
        """CREATE TABLE invites (
            token_hash BLOB PRIMARY KEY,
            person TEXT NOT NULL REFERENCES persons(name) ON DELETE CASCADE,
            expires_ms INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX invites_of ON invites(person)",
        """CREATE TABLE passwords (
            person TEXT PRIMARY KEY REFERENCES persons(name) ON DELETE CASCADE,
            salt BLOB NOT NULL,
            hash BLOB NOT NULL,
            changed_ms INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID""",
    ),
    (  # rooms of channels: which group talks there; a deactivated group keeps what it has and takes no messages
        "ALTER TABLE groups ADD COLUMN deactivated_ms INTEGER",
        # writer: people
        """CREATE TABLE rooms (
            channel TEXT NOT NULL,
            room TEXT NOT NULL,
            group_name TEXT NOT NULL REFERENCES groups(name) ON DELETE CASCADE,
            label TEXT NOT NULL DEFAULT '',
            opened_ms INTEGER NOT NULL,
            PRIMARY KEY (channel, room)
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX rooms_of ON rooms(group_name)",
    ),
    (  # answers that a channel shows while they are written: the message that the whole answer replaces
        # writer: live_answers
        """CREATE TABLE live_answers (
            channel TEXT NOT NULL,
            key TEXT NOT NULL,
            message TEXT NOT NULL,
            begun_ms INTEGER NOT NULL,
            PRIMARY KEY (channel, key)
        ) STRICT, WITHOUT ROWID""",
    ),
    (  # an attempt that has no thread yet is in no index: one page less that each claim writes
        "DROP INDEX task_attempts_by_run",
        "CREATE INDEX task_attempts_by_run ON task_attempts(run) WHERE run IS NOT NULL",
    ),
    (  # encrypted rooms of Matrix: our device, those of others, keys of rooms, what waits for a key, and what was sent
        # writer: olm_account
        """CREATE TABLE matrix_account (
            device TEXT PRIMARY KEY,
            user TEXT NOT NULL,
            pickle TEXT NOT NULL,
            curve TEXT NOT NULL,
            signing TEXT NOT NULL,
            made_ms INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID""",
        # writer: olm_account
        """CREATE TABLE matrix_olm_sessions (
            curve TEXT NOT NULL,
            session TEXT NOT NULL,
            pickle TEXT NOT NULL,
            used_ms INTEGER NOT NULL,
            PRIMARY KEY (curve, session)
        ) STRICT, WITHOUT ROWID""",
        # writer: cross_signing
        """CREATE TABLE matrix_cross_signing (
            user TEXT PRIMARY KEY,
            public TEXT NOT NULL,
            sealed BLOB NOT NULL,
            made_ms INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID""",
        # writer: device_book
        """CREATE TABLE matrix_devices (
            user TEXT NOT NULL,
            device TEXT NOT NULL,
            curve TEXT NOT NULL,
            signing TEXT NOT NULL,
            name TEXT NOT NULL DEFAULT '',
            is_verified INTEGER NOT NULL DEFAULT 0,
            signed_by TEXT NOT NULL DEFAULT '',
            seen_ms INTEGER NOT NULL,
            gone_ms INTEGER,
            PRIMARY KEY (user, device)
        ) STRICT, WITHOUT ROWID""",
        # writer: device_book
        """CREATE TABLE matrix_master_keys (
            user TEXT NOT NULL,
            signing TEXT NOT NULL,
            is_verified INTEGER NOT NULL DEFAULT 0,
            seen_ms INTEGER NOT NULL,
            PRIMARY KEY (user, signing)
        ) STRICT, WITHOUT ROWID""",
        # writer: room_keys
        """CREATE TABLE matrix_room_keys (
            room TEXT NOT NULL,
            session TEXT NOT NULL,
            sender TEXT NOT NULL,
            curve TEXT NOT NULL,
            signing TEXT NOT NULL,
            pickle TEXT NOT NULL,
            received_ms INTEGER NOT NULL,
            PRIMARY KEY (room, session, sender)
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX matrix_room_keys_of ON matrix_room_keys(sender, received_ms)",
        # writer: room_keys
        """CREATE TABLE matrix_message_indexes (
            room TEXT NOT NULL,
            session TEXT NOT NULL,
            sender TEXT NOT NULL,
            number INTEGER NOT NULL,
            event TEXT NOT NULL,
            PRIMARY KEY (room, session, sender, number),
            FOREIGN KEY (room, session, sender) REFERENCES matrix_room_keys(room, session, sender) ON DELETE CASCADE
        ) STRICT, WITHOUT ROWID""",
        # writer: waiting_events
        """CREATE TABLE matrix_waiting (
            event TEXT PRIMARY KEY,
            room TEXT NOT NULL,
            session TEXT NOT NULL,
            sender TEXT NOT NULL,
            body TEXT NOT NULL,
            received_ms INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID""",
        # writer: outbound
        """CREATE TABLE matrix_sent (
            room TEXT NOT NULL,
            key TEXT NOT NULL,
            content TEXT NOT NULL,
            sent_ms INTEGER NOT NULL,
            PRIMARY KEY (room, key)
        ) STRICT, WITHOUT ROWID""",
        # writer: encrypted_rooms
        """CREATE TABLE matrix_encrypted_rooms (
            room TEXT PRIMARY KEY,
            rotation_ms INTEGER NOT NULL,
            rotation_messages INTEGER NOT NULL,
            seen_ms INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID""",
    ),
    (  # a deactivated person keeps what they have and is served nowhere
        "ALTER TABLE persons ADD COLUMN deactivated_ms INTEGER",
    ),
    (  # a clock that is set while the machine runs
        # writer: wall_clock
        """CREATE TABLE wall_clock (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            boot TEXT NOT NULL,
            start_ms INTEGER NOT NULL,
            held_until_ms INTEGER NOT NULL,
            aged_ms INTEGER NOT NULL
        ) STRICT""",
        "INSERT INTO wall_clock VALUES (1, '', 0, 0, CAST(unixepoch('subsec') * 1000 AS INTEGER))",
    ),
    (  # who might write in a channel since when: what was refused stays so when more are let in
        # writer: admissions
        """CREATE TABLE admissions (
            channel TEXT NOT NULL,
            since_ms INTEGER NOT NULL,
            admission TEXT NOT NULL CHECK (json_type(admission) = 'object'),
            PRIMARY KEY (channel, since_ms)
        ) STRICT, WITHOUT ROWID""",
    ),
)

LATEST = len(MIGRATIONS)
