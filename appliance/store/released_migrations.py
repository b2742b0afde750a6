"""The numbered migrations of released databases: append nothing here, change nothing here.

A migration that has been released never changes; `store.migrations` goes on after the last of these. Each statement stands alone,
because a multi-statement string stops at its first row.
"""

RELEASED: tuple[tuple[str, ...], ...] = (
    (  # 1: the spine
        # writer: store
        """CREATE TABLE changesets (
            run TEXT NOT NULL,
            seq INTEGER NOT NULL,
            change BLOB NOT NULL,
            at_ms INTEGER NOT NULL,
            PRIMARY KEY (run, seq)
        ) STRICT, WITHOUT ROWID""",
        # writer: leases
        """CREATE TABLE processes (
            id TEXT PRIMARY KEY,
            kind TEXT NOT NULL CHECK (kind IN ('core', 'broker', 'worker')),
            boot_id TEXT NOT NULL,
            pid INTEGER NOT NULL,
            start_ticks INTEGER NOT NULL,
            started_ms INTEGER NOT NULL,
            ended_ms INTEGER,
            reason TEXT NOT NULL DEFAULT ''
        ) STRICT""",
        # writer: entries
        """CREATE TABLE entries (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            scope TEXT NOT NULL,
            path TEXT NOT NULL CHECK (length(path) BETWEEN 1 AND 2048),
            title TEXT NOT NULL DEFAULT '',
            body TEXT NOT NULL DEFAULT '',
            attributes TEXT NOT NULL DEFAULT '{}' CHECK (json_type(attributes) = 'object'),
            hash TEXT NOT NULL,
            writer TEXT NOT NULL,
            run TEXT,
            created_ms INTEGER NOT NULL,
            updated_ms INTEGER NOT NULL,
            UNIQUE (scope, path)
        ) STRICT""",
        """CREATE VIRTUAL TABLE entries_fts USING fts5(
            title, path, body, content='entries', content_rowid='id', tokenize='porter unicode61 remove_diacritics 2'
        )""",
        """CREATE TRIGGER entries_added AFTER INSERT ON entries BEGIN
            INSERT INTO entries_fts(rowid, title, path, body) VALUES (new.id, new.title, new.path, new.body);
        END""",
        """CREATE TRIGGER entries_removed AFTER DELETE ON entries BEGIN
            INSERT INTO entries_fts(entries_fts, rowid, title, path, body)
            VALUES ('delete', old.id, old.title, old.path, old.body);
        END""",
        """CREATE TRIGGER entries_changed AFTER UPDATE OF title, path, body ON entries BEGIN
            INSERT INTO entries_fts(entries_fts, rowid, title, path, body)
            VALUES ('delete', old.id, old.title, old.path, old.body);
            INSERT INTO entries_fts(rowid, title, path, body) VALUES (new.id, new.title, new.path, new.body);
        END""",
        # writer: runs
        """CREATE TABLE sessions (
            id TEXT PRIMARY KEY,
            channel TEXT NOT NULL,
            sender_id TEXT NOT NULL,
            person TEXT NOT NULL,
            context TEXT NOT NULL,
            status TEXT NOT NULL CHECK (status IN ('idle', 'active', 'stopped', 'archived')),
            process TEXT NOT NULL DEFAULT '',
            created_ms INTEGER NOT NULL,
            last_active_ms INTEGER NOT NULL,
            archived_ms INTEGER
        ) STRICT""",
        """CREATE TABLE runs (
            id TEXT PRIMARY KEY,
            session TEXT NOT NULL REFERENCES sessions(id),
            parent TEXT REFERENCES runs(id),
            kind TEXT NOT NULL CHECK (kind IN ('chat', 'ask', 'tick')),
            task TEXT,
            title TEXT NOT NULL DEFAULT '',
            status INTEGER NOT NULL CHECK (status IN (100, 102, 200, 202, 499, 500)),
            outcome TEXT NOT NULL DEFAULT '',
            metadata TEXT NOT NULL DEFAULT '{}' CHECK (json_type(metadata) = 'object'),
            last_seq INTEGER NOT NULL DEFAULT 0,
            created_ms INTEGER NOT NULL,
            updated_ms INTEGER NOT NULL,
            ended_ms INTEGER
        ) STRICT""",
        "CREATE INDEX runs_by_time ON runs(created_ms)",
        """CREATE TABLE loops (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
            seq INTEGER NOT NULL,
            prompt INTEGER,
            status INTEGER NOT NULL CHECK (status IN (100, 102, 200, 202, 499, 500)),
            outcome TEXT NOT NULL DEFAULT '',
            process TEXT NOT NULL DEFAULT '',
            draft TEXT NOT NULL DEFAULT '',
            correlation TEXT NOT NULL DEFAULT '',
            created_ms INTEGER NOT NULL,
            started_ms INTEGER,
            ended_ms INTEGER,
            UNIQUE (run, seq)
        ) STRICT""",
        "CREATE INDEX loops_open ON loops(status) WHERE status IN (100, 102)",
        """CREATE TABLE turns (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            loop INTEGER NOT NULL REFERENCES loops(id) ON DELETE CASCADE,
            seq INTEGER NOT NULL,
            route TEXT NOT NULL,
            provider TEXT NOT NULL DEFAULT '',
            model TEXT NOT NULL DEFAULT '',
            reason TEXT NOT NULL DEFAULT '',
            prompt_tokens INTEGER,
            evaluated_tokens INTEGER,
            output_tokens INTEGER,
            started_ms INTEGER NOT NULL,
            ended_ms INTEGER,
            UNIQUE (loop, seq)
        ) STRICT""",
        """CREATE TABLE events (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
            seq INTEGER NOT NULL CHECK (seq >= 1),
            parent INTEGER,
            turn INTEGER,
            kind TEXT NOT NULL
                CHECK (kind IN ('message', 'thinking', 'tool_use', 'tool_result', 'context_update', 'status_change')),
            role TEXT NOT NULL CHECK (role IN ('user', 'assistant', 'system', 'tool')),
            content TEXT NOT NULL,
            tool TEXT NOT NULL DEFAULT '',
            input TEXT CHECK (input IS NULL OR json_valid(input)),
            call_id TEXT NOT NULL DEFAULT '',
            duration_ms INTEGER,
            tokens INTEGER,
            status INTEGER NOT NULL DEFAULT 200 CHECK (status BETWEEN 100 AND 599),
            outcome TEXT NOT NULL DEFAULT 'ok',
            channel TEXT NOT NULL DEFAULT '',
            sender_id TEXT NOT NULL DEFAULT '',
            correlation TEXT NOT NULL DEFAULT '',
            at_ms INTEGER NOT NULL,
            UNIQUE (run, seq)
        ) STRICT""",
        """CREATE TRIGGER events_are_final BEFORE UPDATE ON events BEGIN
            SELECT RAISE(ABORT, 'events are never changed');
        END""",
        # writer: inbox
        """CREATE TABLE inbox (
            channel TEXT NOT NULL,
            message_id TEXT NOT NULL,
            run TEXT NOT NULL,
            loop INTEGER NOT NULL,
            received_ms INTEGER NOT NULL,
            PRIMARY KEY (channel, message_id)
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE turn_locks (
            session TEXT PRIMARY KEY,
            process TEXT NOT NULL,
            loop INTEGER NOT NULL,
            taken_ms INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID""",
    ),
    (  # 2: entries in full: kinds of content, who changed what, and what a run sees of them
        "UPDATE entries SET scope = 'project:1' WHERE scope = 'project'",
        "ALTER TABLE entries ADD COLUMN uid TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE entries ADD COLUMN description TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE entries ADD COLUMN mime TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE entries ADD COLUMN source_url TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE entries ADD COLUMN is_textual INTEGER NOT NULL DEFAULT 1 CHECK (is_textual IN (0, 1))",
        "ALTER TABLE entries ADD COLUMN indexed_ms INTEGER",
        """UPDATE entries SET uid = lower(
            printf('%s-%s-4%s-a%s-%s', hex(randomblob(4)), hex(randomblob(2)), substr(hex(randomblob(2)), 2),
                substr(hex(randomblob(2)), 2), hex(randomblob(6))))""",
        """UPDATE entries SET mime = CASE WHEN path GLOB '*.md' OR path GLOB 'box://*' OR path GLOB 'skill://*'
            THEN 'text/markdown' ELSE 'text/plain' END""",
        "CREATE UNIQUE INDEX entries_by_uid ON entries(uid)",
        # writer: entries
        """CREATE TABLE blobs (
            entry INTEGER PRIMARY KEY REFERENCES entries(id) ON DELETE CASCADE,
            data BLOB NOT NULL
        ) STRICT""",
        # writer: changes
        """CREATE TABLE changes (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            scope TEXT NOT NULL,
            path TEXT NOT NULL,
            verb TEXT NOT NULL CHECK (verb IN ('set', 'edit', 'rm', 'cp', 'mv', 'mirror', 'undo')),
            writer TEXT NOT NULL,
            run TEXT,
            before_hash TEXT NOT NULL DEFAULT '',
            after_hash TEXT NOT NULL DEFAULT '',
            size_bytes INTEGER NOT NULL DEFAULT 0,
            patch TEXT NOT NULL DEFAULT '',
            at_ms INTEGER NOT NULL
        ) STRICT""",
        "CREATE INDEX changes_by_path ON changes(scope, path, id)",
        # writer: views
        """CREATE TABLE views (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
            entry INTEGER NOT NULL REFERENCES entries(id) ON DELETE CASCADE,
            visibility TEXT NOT NULL CHECK (visibility IN ('visible', 'summarized', 'archived')),
            state TEXT NOT NULL CHECK (state IN ('proposed', 'streaming', 'resolved', 'failed', 'cancelled')),
            status INTEGER NOT NULL CHECK (status BETWEEN 100 AND 599),
            outcome TEXT NOT NULL DEFAULT '' CHECK (outcome = '' OR state IN ('failed', 'cancelled')),
            summary TEXT NOT NULL DEFAULT '' CHECK (length(summary) <= 80),
            loop INTEGER NOT NULL DEFAULT 0,
            turn INTEGER NOT NULL DEFAULT 0,
            writes INTEGER NOT NULL DEFAULT 0,
            updated_ms INTEGER NOT NULL,
            UNIQUE (run, entry)
        ) STRICT""",
        "CREATE INDEX views_by_entry ON views(entry)",
        """CREATE VIEW run_entries AS
            SELECT v.run, e.scope, e.path, e.title, e.body, e.attributes, e.hash, e.writer, v.visibility, v.state, v.status,
                v.outcome, v.summary, v.loop, v.turn, v.writes, e.created_ms, e.updated_ms
            FROM views v JOIN entries e ON e.id = v.entry""",
        "ALTER TABLE changesets ADD COLUMN undone_by TEXT NOT NULL DEFAULT ''",
        "CREATE INDEX views_waiting ON views(id) WHERE state = 'proposed'",
        # What a deleted run changed is forgotten; that it took back another one is not. What its forks still
        # see goes to the oldest of them that has nothing of its own there; the others go on seeing it.
        """CREATE TRIGGER run_scope_removed AFTER DELETE ON runs BEGIN
            UPDATE entries SET scope = 'run:' || heir.run FROM (
                SELECT v.entry, v.run, MIN(v.id) FROM views v JOIN entries e ON e.id = v.entry
                WHERE e.scope = 'run:' || old.id AND v.run <> old.id AND NOT EXISTS (
                    SELECT 1 FROM entries own WHERE own.scope = 'run:' || v.run AND own.path = e.path)
                GROUP BY v.entry) AS heir
            WHERE entries.id = heir.entry;
            DELETE FROM entries WHERE scope = 'run:' || old.id;
            DELETE FROM changes WHERE scope = 'run:' || old.id;
            UPDATE changesets SET change = x'' WHERE run = old.id;
        END""",
    ),
    (  # 3: the queue: tasks, the workers that claim them, and what is to be told to people
        # writer: leases
        """CREATE TABLE workers (
            id TEXT PRIMARY KEY,
            process TEXT NOT NULL,
            pid INTEGER NOT NULL,
            host TEXT NOT NULL,
            mode TEXT NOT NULL CHECK (mode IN ('once', 'persist')),
            task INTEGER,
            status TEXT NOT NULL CHECK (status IN ('running', 'stopped', 'dead')),
            started_ms INTEGER NOT NULL,
            beat_ms INTEGER NOT NULL,
            ended_ms INTEGER,
            log TEXT,
            reason TEXT NOT NULL DEFAULT ''
        ) STRICT""",
        # writer: tasks
        """CREATE TABLE tasks (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            name TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
            description TEXT NOT NULL DEFAULT '',
            priority TEXT NOT NULL DEFAULT 'medium' CHECK (priority IN ('low', 'medium', 'high')),
            status TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'in_progress', 'waiting', 'complete', 'failed')),
            waiting_reason TEXT NOT NULL DEFAULT '',
            failure TEXT NOT NULL DEFAULT '',
            output TEXT NOT NULL DEFAULT '',
            claimed_by TEXT,
            claimed_ms INTEGER,
            attempts INTEGER NOT NULL DEFAULT 0,
            deaths INTEGER NOT NULL DEFAULT 0,
            deadline_ms INTEGER,
            cancel_ms INTEGER,
            context_ids TEXT NOT NULL DEFAULT '[]' CHECK (json_type(context_ids) = 'array'),
            person TEXT NOT NULL DEFAULT '',
            session TEXT NOT NULL DEFAULT '',
            origin TEXT,
            key TEXT,
            open_blockers INTEGER NOT NULL DEFAULT 0,
            created_ms INTEGER NOT NULL,
            updated_ms INTEGER NOT NULL,
            ended_ms INTEGER,
            CHECK ((status = 'in_progress') = (claimed_by IS NOT NULL))
        ) STRICT""",
        "CREATE UNIQUE INDEX tasks_by_key ON tasks(key) WHERE key IS NOT NULL",
        """CREATE INDEX tasks_ready ON tasks((CASE priority WHEN 'high' THEN 0 WHEN 'medium' THEN 1 ELSE 2 END), id)
            WHERE status = 'pending' AND open_blockers = 0""",
        "CREATE INDEX tasks_claimed ON tasks(claimed_by) WHERE status = 'in_progress'",
        "CREATE INDEX tasks_due ON tasks(deadline_ms) WHERE status = 'pending' AND deadline_ms IS NOT NULL",
        # A blocker that does not exist is one that is not complete, so it is no foreign key.
        """CREATE TABLE task_deps (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            task INTEGER NOT NULL REFERENCES tasks(id) ON DELETE CASCADE,
            blocker INTEGER NOT NULL,
            UNIQUE (task, blocker)
        ) STRICT""",
        "CREATE INDEX task_deps_by_blocker ON task_deps(blocker)",
        """CREATE TABLE task_attempts (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            task INTEGER NOT NULL REFERENCES tasks(id) ON DELETE CASCADE,
            number INTEGER NOT NULL,
            worker TEXT NOT NULL,
            run TEXT,
            outcome TEXT NOT NULL DEFAULT '',
            started_ms INTEGER NOT NULL,
            ended_ms INTEGER,
            UNIQUE (task, number)
        ) STRICT""",
        "CREATE INDEX task_attempts_by_run ON task_attempts(run)",
        # How many blockers are not complete is kept with the task, whoever changes a row: a claim must not count.
        """CREATE TRIGGER task_deps_added AFTER INSERT ON task_deps BEGIN
            UPDATE tasks SET open_blockers = (SELECT COUNT(*) FROM task_deps d LEFT JOIN tasks b ON b.id = d.blocker
                WHERE d.task = new.task AND b.status IS NOT 'complete') WHERE id = new.task;
        END""",
        """CREATE TRIGGER task_deps_removed AFTER DELETE ON task_deps BEGIN
            UPDATE tasks SET open_blockers = (SELECT COUNT(*) FROM task_deps d LEFT JOIN tasks b ON b.id = d.blocker
                WHERE d.task = old.task AND b.status IS NOT 'complete') WHERE id = old.task;
        END""",
        """CREATE TRIGGER task_completed AFTER UPDATE OF status ON tasks
            WHEN (old.status = 'complete') <> (new.status = 'complete') BEGIN
            UPDATE tasks SET open_blockers = (SELECT COUNT(*) FROM task_deps d LEFT JOIN tasks b ON b.id = d.blocker
                WHERE d.task = tasks.id AND b.status IS NOT 'complete')
            WHERE id IN (SELECT task FROM task_deps WHERE blocker = new.id);
        END""",
        """CREATE TRIGGER task_came AFTER INSERT ON tasks WHEN new.status = 'complete' BEGIN
            UPDATE tasks SET open_blockers = (SELECT COUNT(*) FROM task_deps d LEFT JOIN tasks b ON b.id = d.blocker
                WHERE d.task = tasks.id AND b.status IS NOT 'complete')
            WHERE id IN (SELECT task FROM task_deps WHERE blocker = new.id);
        END""",
        """CREATE TRIGGER task_went AFTER DELETE ON tasks WHEN old.status = 'complete' BEGIN
            UPDATE tasks SET open_blockers = (SELECT COUNT(*) FROM task_deps d LEFT JOIN tasks b ON b.id = d.blocker
                WHERE d.task = tasks.id AND b.status IS NOT 'complete')
            WHERE id IN (SELECT task FROM task_deps WHERE blocker = old.id);
        END""",
        # writer: outbox
        """CREATE TABLE outbox (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            key TEXT NOT NULL UNIQUE,
            context TEXT NOT NULL,
            person TEXT NOT NULL,
            channel TEXT NOT NULL DEFAULT '',
            session TEXT NOT NULL DEFAULT '',
            run TEXT,
            text TEXT NOT NULL,
            attachment TEXT,
            metadata TEXT NOT NULL DEFAULT '{}' CHECK (json_type(metadata) = 'object'),
            correlation TEXT NOT NULL DEFAULT '',
            status TEXT NOT NULL CHECK (status IN ('waiting', 'sending', 'sent', 'logged', 'failed', 'cancelled')),
            attempts INTEGER NOT NULL DEFAULT 0,
            may_repeat INTEGER NOT NULL DEFAULT 0 CHECK (may_repeat IN (0, 1)),
            via TEXT NOT NULL DEFAULT '',
            error TEXT NOT NULL DEFAULT '',
            process TEXT NOT NULL DEFAULT '',
            due_ms INTEGER NOT NULL,
            created_ms INTEGER NOT NULL,
            ended_ms INTEGER
        ) STRICT""",
        "CREATE INDEX outbox_open ON outbox(context, session, channel, id) WHERE status IN ('waiting', 'sending')",
        # writer: runs
        "ALTER TABLE sessions ADD COLUMN metadata TEXT NOT NULL DEFAULT '{}' CHECK (json_type(metadata) = 'object')",
        "CREATE INDEX sessions_by_context ON sessions(context, last_active_ms)",
    ),
    (  # 4: finding: passages of entries, their words and their vectors
        "DROP TRIGGER entries_added",
        "DROP TRIGGER entries_removed",
        "DROP TRIGGER entries_changed",
        "DROP TABLE entries_fts",
        # writer: passages
        """CREATE TABLE embedders (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            model TEXT NOT NULL,
            dimension INTEGER NOT NULL,
            UNIQUE (model, dimension)
        ) STRICT""",
        # A place in the text of an entry (characters), never a copy of it; the hash is of the text that its vector stands for.
        """CREATE TABLE chunks (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            entry INTEGER NOT NULL REFERENCES entries(id) ON DELETE CASCADE,
            seq INTEGER NOT NULL,
            start INTEGER NOT NULL,
            stop INTEGER NOT NULL,
            heading TEXT NOT NULL DEFAULT '',
            who TEXT NOT NULL DEFAULT '',
            chunker TEXT NOT NULL DEFAULT '',
            hash BLOB NOT NULL,
            embedder INTEGER REFERENCES embedders(id) ON DELETE SET NULL,
            UNIQUE (entry, seq)
        ) STRICT""",
        "CREATE INDEX chunks_waiting ON chunks(id) WHERE embedder IS NULL",
        "CREATE INDEX chunks_by_speaker ON chunks(who) WHERE who <> ''",
        """CREATE VIRTUAL TABLE chunks_fts USING fts5(
            head, text, near, content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2'
        )""",
        "CREATE VIRTUAL TABLE chunks_vec USING vec0(embedding int8[384] distance_metric=cosine, chunk_size=256)",
        """CREATE TRIGGER chunks_removed AFTER DELETE ON chunks BEGIN
            DELETE FROM chunks_fts WHERE rowid = old.id;
            DELETE FROM chunks_vec WHERE rowid = old.id;
        END""",
        # Entries whose words are not indexed as they now are.
        "CREATE TABLE pending (entry INTEGER PRIMARY KEY REFERENCES entries(id) ON DELETE CASCADE) STRICT",
        """CREATE TRIGGER entries_added AFTER INSERT ON entries BEGIN
            INSERT INTO pending (entry) VALUES (new.id) ON CONFLICT DO NOTHING;
        END""",
        """CREATE TRIGGER entries_changed AFTER UPDATE OF title, path, body, description, mime, is_textual, attributes ON entries
            WHEN (old.title, old.path, old.description, old.mime, old.is_textual, old.attributes, old.body)
                IS NOT (new.title, new.path, new.description, new.mime, new.is_textual, new.attributes, new.body) BEGIN
            INSERT INTO pending (entry) VALUES (new.id) ON CONFLICT DO NOTHING;
        END""",
        "CREATE INDEX entries_documents ON entries(id) WHERE attributes ->> 'is_document' IS 1",
        "INSERT INTO pending (entry) SELECT id FROM entries",
    ),
    (  # 5: where entries were read from, and what of a workspace is read
        # writer: sources
        """CREATE TABLE sources (
            entry INTEGER PRIMARY KEY REFERENCES entries(id) ON DELETE CASCADE,
            file TEXT NOT NULL DEFAULT '',
            mark TEXT NOT NULL DEFAULT '',
            sha256 TEXT NOT NULL,
            hash TEXT NOT NULL,
            reader TEXT NOT NULL,
            uid INTEGER NOT NULL,
            read_ms INTEGER NOT NULL
        ) STRICT""",
        # writer: project
        """CREATE TABLE constraints (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            scope TEXT NOT NULL,
            pattern TEXT NOT NULL,
            kind TEXT NOT NULL CHECK (kind IN ('add', 'readonly', 'ignore')),
            created_ms INTEGER NOT NULL,
            UNIQUE (scope, pattern)
        ) STRICT""",
    ),
    (  # turns: what a run is set to, branches, states that the database itself keeps in order
        # writer: runs
        "ALTER TABLE runs ADD COLUMN alias TEXT",
        "UPDATE runs SET alias = 'thread_' || created_ms || '_' || rowid",
        "CREATE UNIQUE INDEX runs_by_alias ON runs(alias)",
        "ALTER TABLE runs ADD COLUMN role TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE runs ADD COLUMN settings TEXT NOT NULL DEFAULT '{}' CHECK (json_type(settings) = 'object')",
        # The event under which the next one hangs: of this run, or where it was forked, of another one.
        "ALTER TABLE runs ADD COLUMN head INTEGER",
        "UPDATE runs SET head = (SELECT id FROM events WHERE events.run = runs.id AND events.seq = runs.last_seq)",
        # Turns of the lineage before this run's first one.
        "ALTER TABLE runs ADD COLUMN turn_base INTEGER NOT NULL DEFAULT 0",
        # Whether it has more than one branch: then its events by number are not a conversation.
        "ALTER TABLE runs ADD COLUMN is_branched INTEGER NOT NULL DEFAULT 0 CHECK (is_branched IN (0, 1))",
        # Deleted, while forks of it still need where they began.
        "ALTER TABLE runs ADD COLUMN deleted_ms INTEGER",
        "CREATE INDEX runs_by_parent ON runs(parent) WHERE parent IS NOT NULL",
        "CREATE INDEX runs_by_session ON runs(session)",
        """CREATE TRIGGER run_transitions BEFORE UPDATE OF status ON runs
            WHEN old.status <> new.status AND old.status || '>' || new.status NOT IN ('100>102', '100>499', '102>200', '102>202',
                '102>500', '102>499', '202>102', '202>200', '202>499', '200>102', '200>499', '500>102', '500>499', '499>102') BEGIN
            SELECT RAISE(ABORT, 'a run cannot change its status so');
        END""",
        # What a deleted run saw and changed is forgotten, also while its row stays for its forks.
        """CREATE TRIGGER run_hidden AFTER UPDATE OF deleted_ms ON runs WHEN new.deleted_ms IS NOT NULL BEGIN
            DELETE FROM views WHERE run = new.id;
            DELETE FROM entries WHERE scope = 'run:' || new.id AND NOT EXISTS (SELECT 1 FROM views WHERE views.entry = entries.id);
            DELETE FROM changes WHERE scope = 'run:' || new.id;
            UPDATE changesets SET change = x'' WHERE run = new.id;
        END""",
        "ALTER TABLE loops ADD COLUMN mode TEXT NOT NULL DEFAULT 'act' CHECK (mode IN ('ask', 'act'))",
        """UPDATE loops SET status = 499, outcome = 'interrupted' WHERE status = 102
            AND id <> (SELECT MAX(id) FROM loops o WHERE o.run = loops.run AND o.status = 102)""",
        "CREATE UNIQUE INDEX loops_active ON loops(run) WHERE status = 102",
        # A column's CHECK goes with its column: the same column again, with more words.
        "DROP TRIGGER events_are_final",
        """ALTER TABLE events ADD COLUMN sort TEXT NOT NULL DEFAULT 'message' CHECK (sort IN ('message', 'thinking', 'tool_use',
            'tool_result', 'context_update', 'status_change', 'delegate', 'compaction', 'model_change', 'proposal'))""",
        "UPDATE events SET sort = kind",
        "ALTER TABLE events DROP COLUMN kind",
        "ALTER TABLE events RENAME COLUMN sort TO kind",
        """CREATE TRIGGER events_are_final BEFORE UPDATE ON events BEGIN
            SELECT RAISE(ABORT, 'events are never changed');
        END""",
        # writer: sessions
        """ALTER TABLE sessions ADD COLUMN state TEXT NOT NULL DEFAULT 'created'
            CHECK (state IN ('created', 'active', 'idle', 'stopped', 'archived', 'closing', 'closed'))""",
        "UPDATE sessions SET state = status",
        "ALTER TABLE sessions DROP COLUMN status",
        "ALTER TABLE sessions RENAME COLUMN state TO status",
        """CREATE TRIGGER session_transitions BEFORE UPDATE OF status ON sessions
            WHEN old.status <> new.status AND old.status || '>' || new.status NOT IN ('created>active', 'created>archived',
                'created>closed', 'active>idle', 'active>stopped', 'active>archived', 'active>closing', 'active>closed',
                'idle>active', 'idle>stopped', 'idle>archived', 'idle>closing', 'idle>closed', 'stopped>active', 'stopped>idle',
                'stopped>archived', 'stopped>closing', 'stopped>closed', 'archived>active', 'archived>closing',
                'archived>closed', 'closing>closed') BEGIN
            SELECT RAISE(ABORT, 'a session cannot change its status so');
        END""",
        """CREATE TABLE attachments (
            session TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
            process TEXT NOT NULL,
            attached_ms INTEGER NOT NULL,
            PRIMARY KEY (session, process)
        ) STRICT, WITHOUT ROWID""",
        # writer: views
        # When and in which turn a run's summary last changed because of its view of an entry; promoting changes nothing there.
        "ALTER TABLE views ADD COLUMN since_ms INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE views ADD COLUMN since_turn INTEGER NOT NULL DEFAULT 0",
        "UPDATE views SET since_ms = updated_ms, since_turn = turn",
        "CREATE INDEX views_shown ON views(run, since_ms, id) WHERE visibility <> 'archived'",
        """CREATE TRIGGER view_came AFTER INSERT ON views WHEN new.since_ms = 0 BEGIN
            UPDATE views SET since_ms = new.updated_ms, since_turn = new.turn WHERE id = new.id;
        END""",
        """CREATE TRIGGER view_changed AFTER UPDATE OF visibility, summary, status, writes, entry ON views
            WHEN (old.visibility = 'archived' AND new.visibility <> 'archived')
                OR (old.summary, old.status, old.writes, old.entry) IS NOT (new.summary, new.status, new.writes, new.entry) BEGIN
            UPDATE views SET since_ms = new.updated_ms, since_turn = new.turn WHERE id = new.id;
        END""",
        "CREATE INDEX events_compacted ON events(run) WHERE kind = 'compaction'",
        # writer: copies
        # What a model was sent and said, turn by turn, for people to look at. Equal texts are kept once, compressed.
        """CREATE TABLE copied_texts (
            id INTEGER PRIMARY KEY,
            hash BLOB NOT NULL UNIQUE,
            chars INTEGER NOT NULL,
            data BLOB NOT NULL
        ) STRICT""",
        """CREATE TABLE copies (
            id INTEGER PRIMARY KEY,
            run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
            turn INTEGER NOT NULL,
            route TEXT NOT NULL,
            parts TEXT NOT NULL CHECK (json_type(parts) = 'array'),
            tokens INTEGER NOT NULL DEFAULT 0,
            at_ms INTEGER NOT NULL,
            UNIQUE (run, turn)
        ) STRICT""",
        "CREATE INDEX copies_by_time ON copies(at_ms)",
        """CREATE TRIGGER run_hidden_copies AFTER UPDATE OF deleted_ms ON runs WHEN new.deleted_ms IS NOT NULL BEGIN
            DELETE FROM copies WHERE run = new.id;
        END""",
    ),
    (  # containment: what was allowed and refused, and what holds in one conversation only
        # writer: ledger
        """CREATE TABLE audit (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            at_ms INTEGER NOT NULL,
            kind TEXT NOT NULL,
            severity TEXT NOT NULL CHECK (severity IN ('info', 'warning', 'error')),
            session TEXT NOT NULL DEFAULT '',
            run TEXT NOT NULL DEFAULT '',
            actor TEXT NOT NULL DEFAULT '',
            rule TEXT NOT NULL DEFAULT '',
            correlation TEXT NOT NULL DEFAULT '',
            detail TEXT NOT NULL DEFAULT '{}' CHECK (json_type(detail) = 'object')
        ) STRICT""",
        "CREATE INDEX audit_by_run ON audit(run) WHERE run <> ''",
        # That something was done stays; the words it was done with go with the run.
        """CREATE TRIGGER run_gone_audit BEFORE DELETE ON runs BEGIN
            UPDATE audit SET detail = '{}' WHERE run = old.id AND run <> '';
        END""",
        """CREATE TRIGGER run_hidden_audit AFTER UPDATE OF deleted_ms ON runs WHEN new.deleted_ms IS NOT NULL BEGIN
            UPDATE audit SET detail = '{}' WHERE run = new.id AND run <> '';
        END""",
        # writer: gate
        """CREATE TABLE session_policies (
            session TEXT PRIMARY KEY,
            document TEXT NOT NULL,
            set_by TEXT NOT NULL,
            set_ms INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID""",
    ),
    (  # containment: pages as they were fetched
        # writer: visits
        """CREATE TABLE fetches (
            url TEXT PRIMARY KEY,
            etag TEXT NOT NULL,
            modified TEXT NOT NULL,
            content_type TEXT NOT NULL,
            charset TEXT NOT NULL,
            body BLOB NOT NULL,
            used_ms INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX fetches_used ON fetches(used_ms)",
    ),
    (  # remote: what each request to a model took and cost, without a word of it
        # writer: runs
        *(f"ALTER TABLE turns ADD COLUMN {name}_tokens INTEGER" for name in ("cached", "cache_write", "reasoning")),
        "ALTER TABLE turns ADD COLUMN is_estimated INTEGER NOT NULL DEFAULT 0 CHECK (is_estimated IN (0, 1))",
        "ALTER TABLE turns ADD COLUMN cost_micros INTEGER",
        # writer: accounts
        """CREATE TABLE requests (id INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, person TEXT NOT NULL,
            run TEXT NOT NULL, purpose TEXT NOT NULL, route TEXT NOT NULL, provider TEXT NOT NULL, model TEXT NOT NULL,
            is_estimated INTEGER NOT NULL, prompt INTEGER NOT NULL, cached INTEGER NOT NULL, cache_write INTEGER NOT NULL,
            output INTEGER NOT NULL, reasoning INTEGER NOT NULL, cost_micros INTEGER) STRICT""",
        "CREATE INDEX requests_of ON requests(person, id)",
        """CREATE TABLE usage (day TEXT NOT NULL, person TEXT NOT NULL, session TEXT NOT NULL, provider TEXT NOT NULL,
            model TEXT NOT NULL, requests INTEGER NOT NULL, prompt INTEGER NOT NULL, cached INTEGER NOT NULL,
            cache_write INTEGER NOT NULL, output INTEGER NOT NULL, reasoning INTEGER NOT NULL, cost_micros INTEGER NOT NULL,
            unpriced INTEGER NOT NULL, PRIMARY KEY (day, person, session, provider, model)) STRICT, WITHOUT ROWID""",
    ),
)
