-- The tables of the database, each with the one module that writes it. STRICT everywhere; AUTOINCREMENT where full text
-- or changesets refer to a row. Until 0.1.0 is released this file itself is changed; then `store.migrations` goes on after it.

-- writer: store/database.py
CREATE TABLE changesets (
    run TEXT NOT NULL,
    seq INTEGER NOT NULL,
    change BLOB NOT NULL,
    at_ms INTEGER NOT NULL,
    undone_by TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (run, seq)
) STRICT, WITHOUT ROWID;

-- writer: store/process_registry.py
CREATE TABLE processes (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('core', 'broker', 'worker')),
    boot_id TEXT NOT NULL,
    pid INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL,
    started_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    reason TEXT NOT NULL DEFAULT ''
) STRICT;

-- writer: knowledge/entries.py
-- `audience` is whose an entry is: what a run wrote belongs to its person or group, '' to the house.
CREATE TABLE entries (
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
    uid TEXT NOT NULL DEFAULT '',
    description TEXT NOT NULL DEFAULT '',
    mime TEXT NOT NULL DEFAULT '',
    source_url TEXT NOT NULL DEFAULT '',
    is_textual INTEGER NOT NULL DEFAULT 1 CHECK (is_textual IN (0, 1)),
    indexed_ms INTEGER,
    audience TEXT NOT NULL DEFAULT '',
    UNIQUE (scope, path)
) STRICT;
CREATE UNIQUE INDEX entries_by_uid ON entries(uid);
CREATE TRIGGER entries_added AFTER INSERT ON entries BEGIN
    INSERT INTO pending (entry) VALUES (new.id) ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER entries_changed AFTER UPDATE OF title, path, body, description, mime, is_textual, attributes ON entries
    WHEN (old.title, old.path, old.description, old.mime, old.is_textual, old.attributes, old.body)
        IS NOT (new.title, new.path, new.description, new.mime, new.is_textual, new.attributes, new.body) BEGIN
    INSERT INTO pending (entry) VALUES (new.id) ON CONFLICT DO NOTHING;
END;
CREATE INDEX entries_documents ON entries(id) WHERE attributes ->> 'is_document' IS 1;
-- What a marked run writes is marked; entries of runs belong to them anyway.
CREATE TRIGGER entries_marked AFTER INSERT ON entries WHEN new.run IS NOT NULL AND new.scope NOT LIKE 'run:%' BEGIN
    INSERT INTO marks (subject, origin, source, at_ms)
    SELECT 'entry:' || new.id, origin, source, new.updated_ms FROM marks WHERE subject = 'run:' || new.run;
END;
CREATE TRIGGER entries_marked_again AFTER UPDATE OF path, title, body, description ON entries
WHEN new.run IS NOT NULL AND new.scope NOT LIKE 'run:%' BEGIN
    INSERT INTO marks (subject, origin, source, at_ms)
    SELECT 'entry:' || new.id, origin, source, new.updated_ms FROM marks WHERE subject = 'run:' || new.run;
END;

-- writer: sessions/sessions.py
-- A conversation of one person or group in one channel.
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    channel TEXT NOT NULL,
    sender_id TEXT NOT NULL,
    person TEXT NOT NULL,
    context TEXT NOT NULL,
    process TEXT NOT NULL DEFAULT '',
    created_ms INTEGER NOT NULL,
    last_active_ms INTEGER NOT NULL,
    archived_ms INTEGER,
    metadata TEXT NOT NULL DEFAULT '{}' CHECK (json_type(metadata) = 'object'),
    status TEXT NOT NULL DEFAULT 'created' CHECK (status IN ('created', 'active', 'idle', 'stopped', 'archived', 'closing',
        'closed'))
) STRICT;
CREATE INDEX sessions_by_context ON sessions(context, last_active_ms);
CREATE TRIGGER session_transitions BEFORE UPDATE OF status ON sessions
    WHEN old.status <> new.status AND old.status || '>' || new.status NOT IN ('created>active', 'created>archived',
        'created>closed', 'active>idle', 'active>stopped', 'active>archived', 'active>closing', 'active>closed',
        'idle>active', 'idle>stopped', 'idle>archived', 'idle>closing', 'idle>closed', 'stopped>active', 'stopped>idle',
        'stopped>archived', 'stopped>closing', 'stopped>closed', 'archived>active', 'archived>closing',
        'archived>closed', 'closing>closed') BEGIN
    SELECT RAISE(ABORT, 'a session cannot change its status so');
END;

-- writer: sessions/runs.py
-- A thread; a fork has a parent. `head` is the event under which the next one hangs: of this run or, where it was forked, of
-- another one.
-- `turn_base` counts turns of the lineage before its first one; a branched run's events by number are not a conversation; a
-- deleted one stays while forks need where they began.
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions(id),
    parent TEXT REFERENCES runs(id),
    task TEXT,
    title TEXT NOT NULL DEFAULT '',
    status INTEGER NOT NULL CHECK (status IN (100, 102, 200, 202, 499, 500)),
    outcome TEXT NOT NULL DEFAULT '',
    metadata TEXT NOT NULL DEFAULT '{}' CHECK (json_type(metadata) = 'object'),
    last_seq INTEGER NOT NULL DEFAULT 0,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    alias TEXT,
    role TEXT NOT NULL DEFAULT '',
    settings TEXT NOT NULL DEFAULT '{}' CHECK (json_type(settings) = 'object'),
    head INTEGER,
    turn_base INTEGER NOT NULL DEFAULT 0,
    is_branched INTEGER NOT NULL DEFAULT 0 CHECK (is_branched IN (0, 1)),
    deleted_ms INTEGER,
    kind TEXT NOT NULL DEFAULT 'chat' CHECK (kind IN ('chat', 'ask', 'tick', 'child'))
) STRICT;
CREATE INDEX runs_by_time ON runs(created_ms);
-- What a deleted run changed is forgotten; that it took back another one is not. What its forks still
-- see goes to the oldest of them that has nothing of its own there; the others go on seeing it.
CREATE TRIGGER run_scope_removed AFTER DELETE ON runs BEGIN
    UPDATE entries SET scope = 'run:' || heir.run FROM (
        SELECT v.entry, v.run, MIN(v.id) FROM views v JOIN entries e ON e.id = v.entry
        WHERE e.scope = 'run:' || old.id AND v.run <> old.id AND NOT EXISTS (
            SELECT 1 FROM entries own WHERE own.scope = 'run:' || v.run AND own.path = e.path)
        GROUP BY v.entry) AS heir
    WHERE entries.id = heir.entry;
    DELETE FROM entries WHERE scope = 'run:' || old.id;
    DELETE FROM changes WHERE scope = 'run:' || old.id;
    UPDATE changesets SET change = x'' WHERE run = old.id;
END;
CREATE UNIQUE INDEX runs_by_alias ON runs(alias);
CREATE INDEX runs_by_parent ON runs(parent) WHERE parent IS NOT NULL;
CREATE INDEX runs_by_session ON runs(session);
CREATE TRIGGER run_transitions BEFORE UPDATE OF status ON runs
    WHEN old.status <> new.status AND old.status || '>' || new.status NOT IN ('100>102', '100>499', '102>200', '102>202',
        '102>500', '102>499', '202>102', '202>200', '202>499', '200>102', '200>499', '500>102', '500>499', '499>102') BEGIN
    SELECT RAISE(ABORT, 'a run cannot change its status so');
END;
-- What a deleted run saw and changed is forgotten, also while its row stays for its forks.
CREATE TRIGGER run_hidden AFTER UPDATE OF deleted_ms ON runs WHEN new.deleted_ms IS NOT NULL BEGIN
    DELETE FROM views WHERE run = new.id;
    DELETE FROM entries WHERE scope = 'run:' || new.id AND NOT EXISTS (SELECT 1 FROM views WHERE views.entry = entries.id);
    DELETE FROM changes WHERE scope = 'run:' || new.id;
    UPDATE changesets SET change = x'' WHERE run = new.id;
END;
CREATE TRIGGER run_hidden_copies AFTER UPDATE OF deleted_ms ON runs WHEN new.deleted_ms IS NOT NULL BEGIN
    DELETE FROM copies WHERE run = new.id;
END;
-- That something was done stays; the words it was done with go with the run.
CREATE TRIGGER run_gone_audit BEFORE DELETE ON runs BEGIN
    UPDATE audit SET detail = '{}' WHERE run = old.id AND run <> '';
END;
CREATE TRIGGER run_hidden_audit AFTER UPDATE OF deleted_ms ON runs WHEN new.deleted_ms IS NOT NULL BEGIN
    UPDATE audit SET detail = '{}' WHERE run = new.id AND run <> '';
END;
CREATE TRIGGER runs_gone AFTER DELETE ON runs BEGIN DELETE FROM marks WHERE subject = 'run:' || old.id; END;

-- writer: sessions/turns.py
CREATE TABLE loops (
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
    mode TEXT NOT NULL DEFAULT 'act' CHECK (mode IN ('ask', 'act')),
    UNIQUE (run, seq)
) STRICT;
CREATE INDEX loops_open ON loops(status) WHERE status IN (100, 102);
CREATE UNIQUE INDEX loops_active ON loops(run) WHERE status = 102;

-- writer: sessions/turns.py
CREATE TABLE turns (
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
    cached_tokens INTEGER,
    cache_write_tokens INTEGER,
    reasoning_tokens INTEGER,
    is_estimated INTEGER NOT NULL DEFAULT 0 CHECK (is_estimated IN (0, 1)),
    cost_micros INTEGER,
    UNIQUE (loop, seq)
) STRICT;

-- writer: sessions/events.py
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
    seq INTEGER NOT NULL CHECK (seq >= 1),
    parent INTEGER,
    turn INTEGER,
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
    kind TEXT NOT NULL DEFAULT 'message' CHECK (kind IN ('message', 'thinking', 'tool_use', 'tool_result', 'context_update',
        'status_change', 'delegate', 'compaction', 'model_change', 'proposal')),
    UNIQUE (run, seq)
) STRICT;
CREATE TRIGGER events_are_final BEFORE UPDATE ON events BEGIN
    SELECT RAISE(ABORT, 'events are never changed');
END;
CREATE INDEX events_compacted ON events(run) WHERE kind = 'compaction';

-- writer: channels/inbox.py
CREATE TABLE inbox (
    channel TEXT NOT NULL,
    message_id TEXT NOT NULL,
    run TEXT NOT NULL,
    loop INTEGER NOT NULL,
    received_ms INTEGER NOT NULL,
    PRIMARY KEY (channel, message_id)
) STRICT, WITHOUT ROWID;

-- writer: channels/inbox.py
CREATE TABLE turn_locks (
    session TEXT PRIMARY KEY,
    process TEXT NOT NULL,
    loop INTEGER NOT NULL,
    taken_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- writer: knowledge/entries.py
CREATE TABLE blobs (
    entry INTEGER PRIMARY KEY REFERENCES entries(id) ON DELETE CASCADE,
    data BLOB NOT NULL
) STRICT;

-- writer: knowledge/change_log.py
CREATE TABLE changes (
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
) STRICT;
CREATE INDEX changes_by_path ON changes(scope, path, id);

-- writer: knowledge/views.py
-- What a run sees of an entry. `since_*`: when and in which turn its summary last changed because of it; promoting changes
-- nothing there.
CREATE TABLE views (
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
    since_ms INTEGER NOT NULL DEFAULT 0,
    since_turn INTEGER NOT NULL DEFAULT 0,
    UNIQUE (run, entry)
) STRICT;
CREATE INDEX views_by_entry ON views(entry);
CREATE INDEX views_waiting ON views(id) WHERE state = 'proposed';
CREATE INDEX views_shown ON views(run, since_ms, id) WHERE visibility <> 'archived';
CREATE TRIGGER view_came AFTER INSERT ON views WHEN new.since_ms = 0 BEGIN
    UPDATE views SET since_ms = new.updated_ms, since_turn = new.turn WHERE id = new.id;
END;
CREATE TRIGGER view_changed AFTER UPDATE OF visibility, summary, status, writes, entry ON views
    WHEN (old.visibility = 'archived' AND new.visibility <> 'archived')
        OR (old.summary, old.status, old.writes, old.entry) IS NOT (new.summary, new.status, new.writes, new.entry) BEGIN
    UPDATE views SET since_ms = new.updated_ms, since_turn = new.turn WHERE id = new.id;
END;

CREATE VIEW run_entries AS
    SELECT v.run, e.scope, e.path, e.title, e.body, e.attributes, e.hash, e.writer, v.visibility, v.state, v.status,
        v.outcome, v.summary, v.loop, v.turn, v.writes, e.created_ms, e.updated_ms
    FROM views v JOIN entries e ON e.id = v.entry;

-- writer: store/process_registry.py
-- Who claims tasks.
CREATE TABLE workers (
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
) STRICT;

-- writer: work/tasks.py
-- `counted_ms` is what the clock showed when a deadline such as +2h was counted: it moves with a clock that is set.
CREATE TABLE tasks (
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
    counted_ms INTEGER,
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
) STRICT;
CREATE UNIQUE INDEX tasks_by_key ON tasks(key) WHERE key IS NOT NULL;
CREATE INDEX tasks_ready ON tasks((CASE priority WHEN 'high' THEN 0 WHEN 'medium' THEN 1 ELSE 2 END), id)
    WHERE status = 'pending' AND open_blockers = 0;
CREATE INDEX tasks_claimed ON tasks(claimed_by) WHERE status = 'in_progress';
CREATE INDEX tasks_due ON tasks(deadline_ms) WHERE status = 'pending' AND deadline_ms IS NOT NULL;
CREATE TRIGGER task_completed AFTER UPDATE OF status ON tasks
    WHEN (old.status = 'complete') <> (new.status = 'complete') BEGIN
    UPDATE tasks SET open_blockers = (SELECT COUNT(*) FROM task_deps d LEFT JOIN tasks b ON b.id = d.blocker
        WHERE d.task = tasks.id AND b.status IS NOT 'complete')
    WHERE id IN (SELECT task FROM task_deps WHERE blocker = new.id);
END;
CREATE TRIGGER task_came AFTER INSERT ON tasks WHEN new.status = 'complete' BEGIN
    UPDATE tasks SET open_blockers = (SELECT COUNT(*) FROM task_deps d LEFT JOIN tasks b ON b.id = d.blocker
        WHERE d.task = tasks.id AND b.status IS NOT 'complete')
    WHERE id IN (SELECT task FROM task_deps WHERE blocker = new.id);
END;
CREATE TRIGGER task_went AFTER DELETE ON tasks WHEN old.status = 'complete' BEGIN
    UPDATE tasks SET open_blockers = (SELECT COUNT(*) FROM task_deps d LEFT JOIN tasks b ON b.id = d.blocker
        WHERE d.task = tasks.id AND b.status IS NOT 'complete')
    WHERE id IN (SELECT task FROM task_deps WHERE blocker = old.id);
END;
CREATE TRIGGER tasks_marked AFTER INSERT ON tasks WHEN new.origin <> '' BEGIN
    INSERT INTO marks (subject, origin, source, at_ms)
    SELECT 'task:' || new.id, origin, source, new.created_ms FROM marks WHERE subject = 'run:' || new.origin;
END;

-- writer: work/tasks.py
-- A blocker that does not exist is one that is not complete, so it is no foreign key.
CREATE TABLE task_deps (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    task INTEGER NOT NULL REFERENCES tasks(id) ON DELETE CASCADE,
    blocker INTEGER NOT NULL,
    UNIQUE (task, blocker)
) STRICT;
CREATE INDEX task_deps_by_blocker ON task_deps(blocker);
-- How many blockers are not complete is kept with the task, whoever changes a row: a claim must not count.
CREATE TRIGGER task_deps_added AFTER INSERT ON task_deps BEGIN
    UPDATE tasks SET open_blockers = (SELECT COUNT(*) FROM task_deps d LEFT JOIN tasks b ON b.id = d.blocker
        WHERE d.task = new.task AND b.status IS NOT 'complete') WHERE id = new.task;
END;
CREATE TRIGGER task_deps_removed AFTER DELETE ON task_deps BEGIN
    UPDATE tasks SET open_blockers = (SELECT COUNT(*) FROM task_deps d LEFT JOIN tasks b ON b.id = d.blocker
        WHERE d.task = old.task AND b.status IS NOT 'complete') WHERE id = old.task;
END;

-- writer: work/tasks.py
CREATE TABLE task_attempts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    task INTEGER NOT NULL REFERENCES tasks(id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    worker TEXT NOT NULL,
    run TEXT,
    outcome TEXT NOT NULL DEFAULT '',
    started_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    UNIQUE (task, number)
) STRICT;
CREATE INDEX task_attempts_by_run ON task_attempts(run) WHERE run IS NOT NULL;

-- writer: sessions/outbox.py
-- What is to be told to people: `held_ms` until a better time, `seen_ms` when its person was shown it in a thread.
CREATE TABLE outbox (
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
    ended_ms INTEGER,
    held_ms INTEGER,
    seen_ms INTEGER
) STRICT;
CREATE INDEX outbox_open ON outbox(context, session, channel, id) WHERE status IN ('waiting', 'sending');
CREATE INDEX outbox_unseen ON outbox(person, id) WHERE status = 'sent' AND via = 'local' AND seen_ms IS NULL;

-- writer: knowledge/index.py
CREATE TABLE embedders (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    model TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    UNIQUE (model, dimension)
) STRICT;

-- writer: knowledge/index.py
-- A place in the text of an entry (characters), never a copy of it; the hash is of the text that its vector stands for.
CREATE TABLE chunks (
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
) STRICT;
CREATE INDEX chunks_waiting ON chunks(id) WHERE embedder IS NULL;
CREATE INDEX chunks_by_speaker ON chunks(who) WHERE who <> '';
CREATE TRIGGER chunks_removed AFTER DELETE ON chunks BEGIN
    DELETE FROM chunks_fts WHERE rowid = old.id;
    DELETE FROM chunks_vec WHERE rowid = old.id;
END;

-- writer: knowledge/index.py
CREATE VIRTUAL TABLE chunks_fts USING fts5(
    head, text, near, content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2'
);

-- writer: knowledge/index.py
CREATE VIRTUAL TABLE chunks_vec USING vec0(embedding int8[384] distance_metric=cosine, chunk_size=256);

-- writer: knowledge/index.py
-- Entries whose words are not indexed as they now are.
CREATE TABLE pending (entry INTEGER PRIMARY KEY REFERENCES entries(id) ON DELETE CASCADE) STRICT;

-- writer: ingest/sources.py
-- Where entries were read from.
CREATE TABLE sources (
    entry INTEGER PRIMARY KEY REFERENCES entries(id) ON DELETE CASCADE,
    file TEXT NOT NULL DEFAULT '',
    mark TEXT NOT NULL DEFAULT '',
    sha256 TEXT NOT NULL,
    hash TEXT NOT NULL,
    reader TEXT NOT NULL,
    uid INTEGER NOT NULL,
    read_ms INTEGER NOT NULL
) STRICT;

-- writer: ingest/workspace_sync.py
-- What of a workspace is read.
CREATE TABLE constraints (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    scope TEXT NOT NULL,
    pattern TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('add', 'readonly', 'ignore')),
    created_ms INTEGER NOT NULL,
    UNIQUE (scope, pattern)
) STRICT;

-- writer: sessions/sessions.py
CREATE TABLE attachments (
    session TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    process TEXT NOT NULL,
    attached_ms INTEGER NOT NULL,
    PRIMARY KEY (session, process)
) STRICT, WITHOUT ROWID;

-- writer: prompt/sent_copies.py
-- What a model was sent and said, turn by turn, for people to look at. Equal texts are kept once, compressed.
CREATE TABLE copied_texts (
    id INTEGER PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    chars INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;

-- writer: prompt/sent_copies.py
CREATE TABLE copies (
    id INTEGER PRIMARY KEY,
    run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
    turn INTEGER NOT NULL,
    route TEXT NOT NULL,
    parts TEXT NOT NULL CHECK (json_type(parts) = 'array'),
    tokens INTEGER NOT NULL DEFAULT 0,
    at_ms INTEGER NOT NULL,
    UNIQUE (run, turn)
) STRICT;
CREATE INDEX copies_by_time ON copies(at_ms);

-- writer: runtime/rpc/call_log.py
-- The latest calls of the socket's methods; `params` and `result` are excerpts, gone with what they hold.
CREATE TABLE calls (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    caller TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    sender TEXT NOT NULL,
    method TEXT NOT NULL,
    outcome TEXT NOT NULL,
    ms INTEGER NOT NULL,
    correlation TEXT NOT NULL,
    error TEXT NOT NULL,
    params TEXT NOT NULL,
    result TEXT NOT NULL
) STRICT;
CREATE TRIGGER memory_gone_calls BEFORE DELETE ON entries WHEN old.path LIKE 'memory://%' AND old.body <> '' BEGIN
    UPDATE calls SET params = '', result = '' WHERE instr(params || result, old.path)
        OR instr(params || result, substr(json_quote(old.body), 2, min(length(json_quote(old.body)) - 2, 60)));
END;
CREATE TRIGGER run_gone_calls BEFORE DELETE ON runs BEGIN
    UPDATE calls SET params = '', result = '' WHERE instr(params || result, old.id);
END;
CREATE TRIGGER run_hidden_calls AFTER UPDATE OF deleted_ms ON runs WHEN new.deleted_ms IS NOT NULL BEGIN
    UPDATE calls SET params = '', result = '' WHERE instr(params || result, new.id);
END;

-- writer: policy/audit_log.py
-- What was allowed and refused.
CREATE TABLE audit (
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
) STRICT;
CREATE INDEX audit_by_run ON audit(run) WHERE run <> '';

-- writer: policy/gate.py
-- What holds in one conversation only.
CREATE TABLE session_policies (
    session TEXT PRIMARY KEY,
    document TEXT NOT NULL,
    set_by TEXT NOT NULL,
    set_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- writer: web/fetch.py
-- Pages as they were fetched.
CREATE TABLE fetches (
    url TEXT PRIMARY KEY,
    etag TEXT NOT NULL,
    modified TEXT NOT NULL,
    content_type TEXT NOT NULL,
    charset TEXT NOT NULL,
    body BLOB NOT NULL,
    used_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX fetches_used ON fetches(used_ms);

-- writer: models/usage.py
-- What each request to a model took and cost, without a word of it.
CREATE TABLE requests (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms INTEGER NOT NULL,
    person TEXT NOT NULL,
    run TEXT NOT NULL,
    purpose TEXT NOT NULL,
    route TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    is_estimated INTEGER NOT NULL,
    prompt INTEGER NOT NULL,
    cached INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    output INTEGER NOT NULL,
    reasoning INTEGER NOT NULL,
    cost_micros INTEGER
) STRICT;
CREATE INDEX requests_of ON requests(person, id);

-- writer: models/usage.py
CREATE TABLE usage (
    day TEXT NOT NULL,
    person TEXT NOT NULL,
    session TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    requests INTEGER NOT NULL,
    prompt INTEGER NOT NULL,
    cached INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    output INTEGER NOT NULL,
    reasoning INTEGER NOT NULL,
    cost_micros INTEGER NOT NULL,
    unpriced INTEGER NOT NULL,
    PRIMARY KEY (day, person, session, provider, model)
) STRICT, WITHOUT ROWID;

-- writer: work/jobs.py
CREATE TABLE jobs (
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
) STRICT;
CREATE INDEX jobs_open ON jobs(id) WHERE status IN ('waiting', 'running');
CREATE INDEX jobs_of ON jobs(parent);
CREATE INDEX jobs_run ON jobs(run);

-- writer: work/schedules.py
CREATE TABLE schedules (
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
) STRICT;

-- writer: work/schedules.py
-- What follows from a schedule and the clock; kept apart, so that undo need not know of it. `counted_ms` is what the clock
-- showed when next_ms was counted.
CREATE TABLE schedule_state (
    id INTEGER PRIMARY KEY,
    rule TEXT NOT NULL,
    next_ms INTEGER,
    last_run_ms INTEGER,
    last_due_ms INTEGER,
    failures INTEGER NOT NULL DEFAULT 0,
    halt TEXT NOT NULL DEFAULT '' CHECK (halt IN ('', 'completed', 'failed', 'failures')),
    claimed_by TEXT,
    claimed_ms INTEGER,
    said TEXT NOT NULL DEFAULT '',
    counted_ms INTEGER
) STRICT;

-- writer: work/schedules.py
CREATE TABLE firings (
    schedule INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    fired_ms INTEGER NOT NULL,
    process TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('running', 'done', 'failed', 'skipped', 'not due')),
    outcome TEXT NOT NULL DEFAULT '',
    ended_ms INTEGER,
    PRIMARY KEY (schedule, due_ms)
) STRICT, WITHOUT ROWID;

-- writer: mcp/offers.py
-- Tools of servers, as they were last listed.
CREATE TABLE server_offers (
    server TEXT PRIMARY KEY,
    key TEXT NOT NULL,
    listed_ms INTEGER NOT NULL,
    about TEXT NOT NULL CHECK (json_valid(about)),
    error TEXT NOT NULL DEFAULT '',
    has_login INTEGER NOT NULL DEFAULT 0 CHECK (has_login IN (0, 1))
) STRICT, WITHOUT ROWID;

-- writer: mcp/offers.py
CREATE TABLE server_tools (
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
) STRICT;
CREATE TRIGGER server_tools_removed AFTER DELETE ON server_tools BEGIN DELETE FROM server_words WHERE rowid = old.id; END;

-- writer: mcp/offers.py
CREATE VIRTUAL TABLE server_words USING fts5(
    name, text, content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2'
);

-- writer: policy/taint_marks.py
-- Who else had a word in a run, an entry or a task.
CREATE TABLE marks (
    subject TEXT NOT NULL,
    origin TEXT NOT NULL,
    source TEXT NOT NULL DEFAULT '',
    seq INTEGER NOT NULL DEFAULT 0,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (subject, origin, source) ON CONFLICT IGNORE
) STRICT, WITHOUT ROWID;
-- A run says itself from where it is marked, and since which of its events.
CREATE TRIGGER runs_marked AFTER INSERT ON marks WHEN new.subject LIKE 'run:%' BEGIN
    UPDATE runs SET metadata = json_insert(metadata, '$.origins."' || new.origin || '"', new.seq)
    WHERE id = substr(new.subject, 5);
END;

-- writer: policy/taint_marks.py
-- The hashes of words that others had in what was written or said: `marks` has the marks of words:SOURCE.
CREATE TABLE marked_words (
    hash INTEGER NOT NULL,
    source INTEGER NOT NULL,
    PRIMARY KEY (hash, source)
) STRICT, WITHOUT ROWID;

-- writer: policy/grants.py
CREATE TABLE grants (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    person TEXT NOT NULL,
    kind TEXT NOT NULL,
    target TEXT NOT NULL,
    origins TEXT NOT NULL CHECK (json_type(origins) = 'array'),
    made_by TEXT NOT NULL,
    made_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    revoked_ms INTEGER
) STRICT;
CREATE INDEX grants_open ON grants(person) WHERE revoked_ms IS NULL;

-- writer: channels/quiet_hours.py
-- Who wants to hear of nothing for a while.
CREATE TABLE mutes (context TEXT PRIMARY KEY, until_ms INTEGER NOT NULL, made_ms INTEGER NOT NULL DEFAULT 0) STRICT, WITHOUT ROWID;

-- writer: skills/skill_records.py
-- Which text of a skill is trusted, where it came from, how often it was used; owner '' is everybody's.
CREATE TABLE skills (
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    trusted_hash TEXT NOT NULL DEFAULT '',
    trusted_by TEXT NOT NULL DEFAULT '',
    source TEXT NOT NULL DEFAULT '',
    uses INTEGER NOT NULL DEFAULT 0,
    used_ms INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (owner, name)
) STRICT, WITHOUT ROWID;

-- writer: sessions/people.py
-- A deactivated person keeps what they have and is served nowhere.
CREATE TABLE persons (
    name TEXT PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 128),
    created_ms INTEGER NOT NULL,
    deactivated_ms INTEGER
) STRICT, WITHOUT ROWID;

-- writer: sessions/people.py
-- A deactivated group keeps what it has and takes no messages.
CREATE TABLE groups (
    name TEXT PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 128),
    created_ms INTEGER NOT NULL,
    deactivated_ms INTEGER
) STRICT, WITHOUT ROWID;

-- writer: sessions/people.py
CREATE TABLE members (
    person TEXT NOT NULL REFERENCES persons(name) ON DELETE CASCADE,
    group_name TEXT NOT NULL REFERENCES groups(name) ON DELETE CASCADE,
    PRIMARY KEY (person, group_name)
) STRICT, WITHOUT ROWID;

-- writer: sessions/people.py
-- To whom the addresses of channels belong.
CREATE TABLE identities (
    channel TEXT NOT NULL,
    address TEXT NOT NULL,
    person TEXT NOT NULL REFERENCES persons(name) ON DELETE CASCADE,
    reply TEXT NOT NULL DEFAULT '{}' CHECK (json_type(reply) = 'object'),
    linked_ms INTEGER NOT NULL,
    PRIMARY KEY (channel, address)
) STRICT, WITHOUT ROWID;
CREATE INDEX identities_of ON identities(person);

-- writer: sessions/logins.py
-- From other machines: of tokens and invites the SHA-256, of passwords the scrypt.
CREATE TABLE logins (
    id TEXT PRIMARY KEY,
    person TEXT NOT NULL REFERENCES persons(name) ON DELETE CASCADE,
    token_hash BLOB NOT NULL UNIQUE,
    agent TEXT NOT NULL,
    address TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    seen_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX logins_of ON logins(person);

-- writer: sessions/logins.py
CREATE TABLE invites (
    token_hash BLOB PRIMARY KEY,
    person TEXT NOT NULL REFERENCES persons(name) ON DELETE CASCADE,
    expires_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX invites_of ON invites(person);

-- writer: sessions/logins.py
CREATE TABLE passwords (
    person TEXT PRIMARY KEY REFERENCES persons(name) ON DELETE CASCADE,
    salt BLOB NOT NULL,
    hash BLOB NOT NULL,
    changed_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- writer: sessions/people.py
-- Which group talks in a room of a channel.
CREATE TABLE rooms (
    channel TEXT NOT NULL,
    room TEXT NOT NULL,
    group_name TEXT NOT NULL REFERENCES groups(name) ON DELETE CASCADE,
    label TEXT NOT NULL DEFAULT '',
    opened_ms INTEGER NOT NULL,
    PRIMARY KEY (channel, room)
) STRICT, WITHOUT ROWID;
CREATE INDEX rooms_of ON rooms(group_name);

-- writer: channels/live_answers.py
-- Answers that a channel shows while they are written: the message that the whole answer replaces.
CREATE TABLE live_answers (
    channel TEXT NOT NULL,
    key TEXT NOT NULL,
    message TEXT NOT NULL,
    begun_ms INTEGER NOT NULL,
    PRIMARY KEY (channel, key)
) STRICT, WITHOUT ROWID;

-- writer: matrix/olm_account.py
-- Our device in encrypted rooms.
CREATE TABLE matrix_account (
    device TEXT PRIMARY KEY,
    user TEXT NOT NULL,
    pickle TEXT NOT NULL,
    curve TEXT NOT NULL,
    signing TEXT NOT NULL,
    made_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- writer: matrix/olm_account.py
CREATE TABLE matrix_olm_sessions (
    curve TEXT NOT NULL,
    session TEXT NOT NULL,
    pickle TEXT NOT NULL,
    used_ms INTEGER NOT NULL,
    PRIMARY KEY (curve, session)
) STRICT, WITHOUT ROWID;

-- writer: matrix/cross_signing.py
CREATE TABLE matrix_cross_signing (
    user TEXT PRIMARY KEY,
    public TEXT NOT NULL,
    sealed BLOB NOT NULL,
    made_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- writer: matrix/device_book.py
CREATE TABLE matrix_devices (
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
) STRICT, WITHOUT ROWID;

-- writer: matrix/device_book.py
CREATE TABLE matrix_master_keys (
    user TEXT NOT NULL,
    signing TEXT NOT NULL,
    is_verified INTEGER NOT NULL DEFAULT 0,
    seen_ms INTEGER NOT NULL,
    PRIMARY KEY (user, signing)
) STRICT, WITHOUT ROWID;

-- writer: matrix/room_keys.py
CREATE TABLE matrix_room_keys (
    room TEXT NOT NULL,
    session TEXT NOT NULL,
    sender TEXT NOT NULL,
    curve TEXT NOT NULL,
    signing TEXT NOT NULL,
    pickle TEXT NOT NULL,
    received_ms INTEGER NOT NULL,
    PRIMARY KEY (room, session, sender)
) STRICT, WITHOUT ROWID;
CREATE INDEX matrix_room_keys_of ON matrix_room_keys(sender, received_ms);

-- writer: matrix/room_keys.py
CREATE TABLE matrix_message_indexes (
    room TEXT NOT NULL,
    session TEXT NOT NULL,
    sender TEXT NOT NULL,
    number INTEGER NOT NULL,
    event TEXT NOT NULL,
    PRIMARY KEY (room, session, sender, number),
    FOREIGN KEY (room, session, sender) REFERENCES matrix_room_keys(room, session, sender) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- writer: matrix/room_encryption.py
-- Messages that wait for a key.
CREATE TABLE matrix_waiting (
    event TEXT PRIMARY KEY,
    room TEXT NOT NULL,
    session TEXT NOT NULL,
    sender TEXT NOT NULL,
    body TEXT NOT NULL,
    received_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- writer: matrix/outbound.py
-- What was sent in encrypted rooms.
CREATE TABLE matrix_sent (
    room TEXT NOT NULL,
    key TEXT NOT NULL,
    content TEXT NOT NULL,
    sent_ms INTEGER NOT NULL,
    PRIMARY KEY (room, key)
) STRICT, WITHOUT ROWID;

-- writer: matrix/encrypted_rooms.py
CREATE TABLE matrix_encrypted_rooms (
    room TEXT PRIMARY KEY,
    rotation_ms INTEGER NOT NULL,
    rotation_messages INTEGER NOT NULL,
    seen_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- writer: store/wall_clock.py
-- A clock that is set while the machine runs.
CREATE TABLE wall_clock (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    boot TEXT NOT NULL,
    start_ms INTEGER NOT NULL,
    held_until_ms INTEGER NOT NULL,
    aged_ms INTEGER NOT NULL
) STRICT;
INSERT INTO wall_clock VALUES (1, '', 0, 0, CAST(unixepoch('subsec') * 1000 AS INTEGER));

-- writer: channels/gateway.py
-- Who might write in a channel since when: what was refused stays so when more are let in.
CREATE TABLE admissions (
    channel TEXT NOT NULL,
    since_ms INTEGER NOT NULL,
    admission TEXT NOT NULL CHECK (json_type(admission) = 'object'),
    PRIMARY KEY (channel, since_ms)
) STRICT, WITHOUT ROWID;
