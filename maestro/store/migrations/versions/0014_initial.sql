CREATE TABLE agents (
	id INTEGER NOT NULL, 
	slug VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	role VARCHAR NOT NULL, 
	description VARCHAR NOT NULL, 
	system_prompt VARCHAR NOT NULL, 
	model VARCHAR NOT NULL, 
	status VARCHAR NOT NULL, 
	configured BOOLEAN NOT NULL, 
	created_at VARCHAR(32) NOT NULL, 
	updated_at VARCHAR(32) NOT NULL, fallbacks VARCHAR DEFAULT '' NOT NULL, tools VARCHAR, client_id INTEGER, daily_budget_usd FLOAT, voice VARCHAR DEFAULT '' NOT NULL, language VARCHAR DEFAULT '' NOT NULL, quirks VARCHAR DEFAULT '[]' NOT NULL, skills VARCHAR, allow_users VARCHAR, memory_scope VARCHAR, entry VARCHAR DEFAULT '' NOT NULL, version INTEGER DEFAULT '1' NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (slug)
);

CREATE TABLE audit_log (
	id INTEGER NOT NULL, 
	at VARCHAR(32) NOT NULL, 
	actor VARCHAR NOT NULL, 
	action VARCHAR NOT NULL, 
	subject VARCHAR NOT NULL, 
	detail VARCHAR NOT NULL, origin VARCHAR DEFAULT '' NOT NULL, 
	PRIMARY KEY (id)
);

CREATE INDEX ix_audit_log_at ON audit_log (at);

CREATE TABLE channel_owners (
	platform VARCHAR NOT NULL, 
	account VARCHAR NOT NULL, 
	channel VARCHAR NOT NULL, 
	user_id VARCHAR NOT NULL, 
	opened_at VARCHAR(32) NOT NULL, 
	PRIMARY KEY (platform, account, channel)
);

CREATE TABLE connectors (
	platform VARCHAR NOT NULL, 
	account VARCHAR NOT NULL, 
	state VARCHAR NOT NULL, 
	detail VARCHAR NOT NULL, 
	changed_at VARCHAR(32) NOT NULL, last_event_at VARCHAR(32), lag_seconds FLOAT, last_error VARCHAR DEFAULT '' NOT NULL, last_error_at VARCHAR(32), edit_interval FLOAT DEFAULT '0' NOT NULL, 
	PRIMARY KEY (platform, account)
);

CREATE TABLE inbox (
	id INTEGER NOT NULL, 
	platform VARCHAR NOT NULL, 
	account VARCHAR NOT NULL, 
	channel VARCHAR NOT NULL, 
	thread VARCHAR NOT NULL, 
	message_id VARCHAR NOT NULL, 
	user_id VARCHAR NOT NULL, 
	user_name VARCHAR NOT NULL, 
	content VARCHAR NOT NULL, 
	attachments VARCHAR NOT NULL, 
	is_direct BOOLEAN NOT NULL, 
	is_owner BOOLEAN NOT NULL, 
	from_bot BOOLEAN NOT NULL, 
	reply_to VARCHAR NOT NULL, 
	sent_at VARCHAR(32) NOT NULL, 
	received_at VARCHAR(32) NOT NULL, 
	job_id VARCHAR NOT NULL, 
	control VARCHAR NOT NULL, pace VARCHAR DEFAULT '' NOT NULL, addressing VARCHAR DEFAULT '' NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (platform, account, channel, message_id)
);

CREATE INDEX ix_inbox_job_id ON inbox (job_id);

CREATE INDEX ix_inbox_new_conversation ON inbox (platform, account, channel, id) WHERE control = '/new';

CREATE TABLE prompt_parts (
	digest VARCHAR NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (digest)
);

CREATE TABLE uploads (
	id VARCHAR NOT NULL, 
	user_id VARCHAR NOT NULL, 
	digest VARCHAR NOT NULL, 
	filename VARCHAR NOT NULL, 
	content_type VARCHAR NOT NULL, 
	size INTEGER NOT NULL, 
	created_at VARCHAR(32) NOT NULL, 
	PRIMARY KEY (id)
);

CREATE INDEX ix_uploads_user_id ON uploads (user_id);

CREATE TABLE web_tickets (
	digest VARCHAR NOT NULL, 
	user_id VARCHAR NOT NULL, 
	user_name VARCHAR NOT NULL, 
	role VARCHAR NOT NULL, 
	expires_at VARCHAR(32) NOT NULL, 
	PRIMARY KEY (digest)
);

CREATE TABLE agent_channels (
	id INTEGER NOT NULL, 
	agent_id INTEGER NOT NULL, 
	platform VARCHAR NOT NULL, 
	account VARCHAR NOT NULL, 
	channel VARCHAR NOT NULL, 
	permission VARCHAR NOT NULL, 
	key_by_user BOOLEAN NOT NULL, 
	client_id INTEGER, 
	configured BOOLEAN NOT NULL, busy VARCHAR, allow_bots BOOLEAN DEFAULT 0 NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(agent_id) REFERENCES agents (id), 
	UNIQUE (platform, account, channel)
);

CREATE INDEX ix_agent_channels_agent_id ON agent_channels (agent_id);

CREATE TABLE conversations (
	id INTEGER NOT NULL, 
	"key" VARCHAR NOT NULL, 
	agent_id INTEGER NOT NULL, 
	platform VARCHAR NOT NULL, 
	account VARCHAR NOT NULL, 
	channel VARCHAR NOT NULL, 
	thread VARCHAR NOT NULL, 
	user_id VARCHAR NOT NULL, 
	user_name VARCHAR NOT NULL, 
	status VARCHAR NOT NULL, 
	closed_by_inbox_id INTEGER, 
	total_tokens_estimate INTEGER NOT NULL, 
	message_count INTEGER NOT NULL, 
	started_at VARCHAR(32) NOT NULL, 
	last_message_at VARCHAR(32) NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(agent_id) REFERENCES agents (id), 
	FOREIGN KEY(closed_by_inbox_id) REFERENCES inbox (id)
);

CREATE INDEX ix_conversations_agent_id ON conversations (agent_id);

CREATE INDEX ix_conversations_channel ON conversations (platform, account, channel);

CREATE INDEX ix_conversations_key ON conversations ("key");

CREATE UNIQUE INDEX ux_conversations_active_key ON conversations ("key") WHERE status = 'active';

CREATE TABLE media (
	id INTEGER NOT NULL, 
	inbox_id INTEGER NOT NULL, 
	seq INTEGER NOT NULL, 
	digest VARCHAR NOT NULL, 
	content_type VARCHAR NOT NULL, 
	filename VARCHAR NOT NULL, 
	size INTEGER NOT NULL, 
	error VARCHAR NOT NULL, transcript VARCHAR, 
	PRIMARY KEY (id), 
	FOREIGN KEY(inbox_id) REFERENCES inbox (id), 
	UNIQUE (inbox_id, seq)
);

CREATE TABLE compactions (
	id INTEGER NOT NULL, 
	conversation_id INTEGER NOT NULL, 
	agent_id INTEGER NOT NULL, 
	summary VARCHAR NOT NULL, 
	messages_before INTEGER NOT NULL, 
	messages_after INTEGER NOT NULL, 
	tokens_saved INTEGER NOT NULL, 
	created_at VARCHAR(32) NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(agent_id) REFERENCES agents (id), 
	FOREIGN KEY(conversation_id) REFERENCES conversations (id)
);

CREATE INDEX ix_compactions_conversation_id ON compactions (conversation_id);

CREATE TABLE memory_facts (
	id INTEGER NOT NULL, 
	agent_id INTEGER NOT NULL, 
	category VARCHAR NOT NULL, 
	content VARCHAR NOT NULL, 
	confidence FLOAT NOT NULL, 
	source_conversation_id INTEGER, 
	created_at VARCHAR(32) NOT NULL, 
	last_accessed VARCHAR(32), 
	access_count INTEGER NOT NULL, place VARCHAR DEFAULT '' NOT NULL, likeness VARCHAR DEFAULT '' NOT NULL, words VARCHAR DEFAULT '' NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(agent_id) REFERENCES agents (id), 
	FOREIGN KEY(source_conversation_id) REFERENCES conversations (id)
);

CREATE INDEX ix_memory_facts_agent ON memory_facts (agent_id, category);

CREATE INDEX ix_memory_facts_source_conversation_id ON memory_facts (source_conversation_id);

CREATE TABLE queue (
	id VARCHAR NOT NULL, 
	kind VARCHAR NOT NULL, 
	status VARCHAR NOT NULL, 
	priority INTEGER NOT NULL, 
	lane VARCHAR, 
	turn INTEGER, 
	inbox_id INTEGER, 
	platform VARCHAR NOT NULL, 
	account VARCHAR NOT NULL, 
	channel VARCHAR NOT NULL, 
	thread VARCHAR NOT NULL, 
	agent_id INTEGER, 
	conversation_id INTEGER, 
	answer_id INTEGER, 
	notice VARCHAR NOT NULL, 
	run INTEGER NOT NULL, 
	recoveries INTEGER NOT NULL, 
	attempts INTEGER NOT NULL, 
	error VARCHAR NOT NULL, 
	reason VARCHAR NOT NULL, 
	stop_requested BOOLEAN NOT NULL, 
	restarted_from VARCHAR, 
	created_at VARCHAR(32) NOT NULL, 
	claimed_at VARCHAR(32), 
	started_at VARCHAR(32), 
	completed_at VARCHAR(32), client_id INTEGER, waits_for VARCHAR, waits_since VARCHAR(32), wake_at VARCHAR(32), told_to_wait BOOLEAN DEFAULT 0 NOT NULL, merged_into VARCHAR, parent_id VARCHAR, depth INTEGER DEFAULT '0' NOT NULL, task VARCHAR DEFAULT '' NOT NULL, hears BOOLEAN DEFAULT 0 NOT NULL, erased BOOLEAN DEFAULT 0 NOT NULL, schedule VARCHAR, slot VARCHAR(32), webhook_id INTEGER, said VARCHAR DEFAULT '' NOT NULL, edits VARCHAR DEFAULT '' NOT NULL, what_if BOOLEAN DEFAULT 0 NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(agent_id) REFERENCES agents (id), 
	FOREIGN KEY(conversation_id) REFERENCES conversations (id), 
	FOREIGN KEY(inbox_id) REFERENCES inbox (id)
);

CREATE INDEX ix_queue_agent_id ON queue (agent_id);

CREATE INDEX ix_queue_conversation_id ON queue (conversation_id);

CREATE INDEX ix_queue_open_lane ON queue (lane, turn) WHERE status IN ('pending', 'running');

CREATE INDEX ix_queue_restarted_from ON queue (restarted_from);

CREATE INDEX ix_queue_status_turn ON queue (status, turn);

CREATE INDEX ix_queue_turn ON queue (turn);

CREATE TABLE deliveries (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	job_id VARCHAR NOT NULL, 
	purpose VARCHAR NOT NULL, 
	seq INTEGER NOT NULL, 
	platform VARCHAR NOT NULL, 
	account VARCHAR NOT NULL, 
	channel VARCHAR NOT NULL, 
	thread VARCHAR NOT NULL, 
	content VARCHAR NOT NULL, 
	reply_to VARCHAR NOT NULL, 
	state VARCHAR NOT NULL, 
	attempts INTEGER NOT NULL, 
	platform_message_id VARCHAR NOT NULL, 
	error VARCHAR NOT NULL, 
	created_at VARCHAR(32) NOT NULL, 
	sent_at VARCHAR(32), filename VARCHAR DEFAULT '' NOT NULL, tried_at VARCHAR(32), digest VARCHAR DEFAULT '' NOT NULL, content_type VARCHAR DEFAULT '' NOT NULL, buttons VARCHAR DEFAULT '' NOT NULL, edits VARCHAR DEFAULT '' NOT NULL, "key" VARCHAR DEFAULT '' NOT NULL, standing VARCHAR DEFAULT '' NOT NULL, repeats INTEGER DEFAULT '0' NOT NULL, 
	FOREIGN KEY(job_id) REFERENCES queue (id), 
	UNIQUE (job_id, purpose, seq)
);

CREATE INDEX ix_deliveries_channel ON deliveries (platform, account, channel, id);

CREATE TABLE job_steps (
	id INTEGER NOT NULL, 
	job_id VARCHAR NOT NULL, 
	step VARCHAR NOT NULL, 
	activity VARCHAR NOT NULL, 
	run INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	state VARCHAR NOT NULL, 
	started_at VARCHAR(32) NOT NULL, 
	finished_at VARCHAR(32), 
	result VARCHAR NOT NULL, 
	error VARCHAR NOT NULL, 
	detail VARCHAR NOT NULL, workflow_run VARCHAR DEFAULT '' NOT NULL, activity_attempt INTEGER DEFAULT '0' NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(job_id) REFERENCES queue (id), 
	UNIQUE (job_id, step, attempt)
);

CREATE TABLE llm_calls (
	id INTEGER NOT NULL, 
	job_id VARCHAR NOT NULL, 
	purpose VARCHAR NOT NULL, 
	number INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	state VARCHAR NOT NULL, 
	request VARCHAR NOT NULL, 
	content VARCHAR NOT NULL, 
	provider VARCHAR NOT NULL, 
	model VARCHAR NOT NULL, 
	account VARCHAR NOT NULL, 
	input_tokens INTEGER NOT NULL, 
	output_tokens INTEGER NOT NULL, 
	cost_usd FLOAT, 
	finish_reason VARCHAR NOT NULL, 
	error VARCHAR NOT NULL, 
	started_at VARCHAR(32) NOT NULL, 
	finished_at VARCHAR(32), 
	duration_ms INTEGER, tool_calls VARCHAR DEFAULT '' NOT NULL, cached_tokens INTEGER DEFAULT '0' NOT NULL, cache_write_tokens INTEGER DEFAULT '0' NOT NULL, chat_after INTEGER DEFAULT '0' NOT NULL, chat_upto INTEGER DEFAULT '0' NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(job_id) REFERENCES queue (id), 
	UNIQUE (job_id, purpose, number, attempt)
);

CREATE TABLE messages (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	conversation_id INTEGER NOT NULL, 
	role VARCHAR NOT NULL, 
	content VARCHAR NOT NULL, 
	token_estimate INTEGER NOT NULL, 
	inbox_id INTEGER, 
	job_id VARCHAR NOT NULL, 
	superseded BOOLEAN NOT NULL, 
	created_at VARCHAR(32) NOT NULL, agent_id INTEGER, has_files BOOLEAN DEFAULT 0 NOT NULL, plain_chars INTEGER, 
	FOREIGN KEY(conversation_id) REFERENCES conversations (id), 
	FOREIGN KEY(inbox_id) REFERENCES inbox (id), 
	FOREIGN KEY(job_id) REFERENCES queue (id), 
	UNIQUE (inbox_id)
);

CREATE UNIQUE INDEX ux_messages_answer_of_job ON messages (job_id) WHERE role = 'assistant';

CREATE TABLE messages_archive (
	id INTEGER NOT NULL, 
	conversation_id INTEGER NOT NULL, 
	role VARCHAR NOT NULL, 
	content VARCHAR NOT NULL, 
	token_estimate INTEGER NOT NULL, 
	inbox_id INTEGER, 
	job_id VARCHAR NOT NULL, 
	superseded BOOLEAN NOT NULL, 
	created_at VARCHAR(32) NOT NULL, agent_id INTEGER, has_files BOOLEAN DEFAULT 0 NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(conversation_id) REFERENCES conversations (id), 
	FOREIGN KEY(inbox_id) REFERENCES inbox (id), 
	FOREIGN KEY(job_id) REFERENCES queue (id), 
	UNIQUE (inbox_id)
);

CREATE INDEX ix_messages_archive_conversation ON messages_archive (conversation_id, id);

CREATE TABLE outbound_lanes (
	lane VARCHAR NOT NULL, 
	job_id VARCHAR NOT NULL, 
	taken_at VARCHAR(32) NOT NULL, 
	PRIMARY KEY (lane), 
	FOREIGN KEY(job_id) REFERENCES queue (id)
);

CREATE TABLE prompts (
	id INTEGER NOT NULL, 
	job_id VARCHAR NOT NULL, 
	turns VARCHAR NOT NULL, 
	tokens INTEGER NOT NULL, 
	created_at VARCHAR(32) NOT NULL, layers VARCHAR DEFAULT '[]' NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(job_id) REFERENCES queue (id), 
	UNIQUE (job_id)
);

CREATE TABLE owners (
	platform VARCHAR NOT NULL, 
	user_id VARCHAR NOT NULL, 
	added_at VARCHAR(32) NOT NULL, 
	added_by VARCHAR NOT NULL, 
	PRIMARY KEY (platform, user_id)
);

CREATE TABLE accounts (
	id INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	type VARCHAR NOT NULL, 
	provider VARCHAR NOT NULL, 
	model VARCHAR NOT NULL, 
	models VARCHAR NOT NULL, 
	base_url VARCHAR NOT NULL, 
	home_dir VARCHAR NOT NULL, 
	priority INTEGER NOT NULL, 
	status VARCHAR NOT NULL, 
	source VARCHAR NOT NULL, 
	fingerprint VARCHAR NOT NULL, 
	secret VARCHAR NOT NULL, 
	last4 VARCHAR NOT NULL, 
	requests_per_minute INTEGER NOT NULL, 
	tokens_per_minute INTEGER NOT NULL, 
	concurrency INTEGER NOT NULL, 
	calls INTEGER NOT NULL, 
	spent_usd FLOAT NOT NULL, 
	rate_limited_until VARCHAR(32), 
	last_error VARCHAR NOT NULL, 
	last_error_at VARCHAR(32), 
	last_used_at VARCHAR(32), 
	created_at VARCHAR(32) NOT NULL, 
	updated_at VARCHAR(32) NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (name)
);

CREATE TABLE account_limits (
	account_id INTEGER NOT NULL, 
	model VARCHAR NOT NULL, 
	strikes INTEGER NOT NULL, 
	limited_at VARCHAR(32) NOT NULL, 
	limited_until VARCHAR(32) NOT NULL, 
	PRIMARY KEY (account_id, model), 
	FOREIGN KEY(account_id) REFERENCES accounts (id)
);

CREATE TABLE usage_log (
	id INTEGER NOT NULL, 
	at VARCHAR(32) NOT NULL, 
	job_id VARCHAR NOT NULL, 
	purpose VARCHAR NOT NULL, 
	number INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	agent_id INTEGER, 
	client_id INTEGER, 
	conversation_id INTEGER, 
	provider VARCHAR NOT NULL, 
	model VARCHAR NOT NULL, 
	account VARCHAR NOT NULL, 
	state VARCHAR NOT NULL, 
	input_tokens INTEGER NOT NULL, 
	output_tokens INTEGER NOT NULL, 
	cached_tokens INTEGER NOT NULL, 
	cost_usd FLOAT, 
	duration_ms INTEGER, 
	error VARCHAR NOT NULL, 
	PRIMARY KEY (id)
);

CREATE INDEX ix_usage_log_at ON usage_log (at);

CREATE INDEX ix_usage_log_job_id ON usage_log (job_id, number, attempt);

CREATE TABLE spending (
	day DATE NOT NULL, 
	scope VARCHAR NOT NULL, 
	subject VARCHAR NOT NULL, 
	spent_usd FLOAT NOT NULL, 
	reserved_usd FLOAT NOT NULL, 
	PRIMARY KEY (day, scope, subject)
);

CREATE TABLE reservations (
	job_id VARCHAR NOT NULL, 
	purpose VARCHAR NOT NULL, 
	number INTEGER NOT NULL, 
	day DATE NOT NULL, 
	amount_usd FLOAT NOT NULL, 
	scopes VARCHAR NOT NULL, 
	PRIMARY KEY (job_id, purpose, number)
);

CREATE TABLE clients (
	id INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	daily_budget_usd FLOAT, 
	configured BOOLEAN NOT NULL, slug VARCHAR DEFAULT '' NOT NULL, "plan" VARCHAR DEFAULT 'per_task' NOT NULL, weight FLOAT DEFAULT '1.0' NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (name)
);

CREATE TABLE tool_calls (
	id INTEGER NOT NULL, 
	job_id VARCHAR NOT NULL, 
	number INTEGER NOT NULL, 
	place INTEGER NOT NULL, 
	tool VARCHAR NOT NULL, 
	arguments VARCHAR NOT NULL, 
	state VARCHAR NOT NULL, 
	attempts INTEGER NOT NULL, 
	result VARCHAR NOT NULL, 
	error VARCHAR NOT NULL, 
	started_at VARCHAR(32) NOT NULL, 
	finished_at VARCHAR(32), 
	PRIMARY KEY (id), 
	FOREIGN KEY(job_id) REFERENCES queue (id), 
	UNIQUE (job_id, number, place)
);

CREATE INDEX ix_queue_waiting ON queue (wake_at) WHERE status = 'waiting';

CREATE TABLE agent_versions (
	id INTEGER NOT NULL, 
	agent_id INTEGER NOT NULL, 
	version INTEGER NOT NULL, 
	at VARCHAR(32) NOT NULL, 
	actor VARCHAR NOT NULL, 
	reason VARCHAR NOT NULL, 
	snapshot VARCHAR NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(agent_id) REFERENCES agents (id), 
	UNIQUE (agent_id, version)
);

CREATE TABLE bot_instances (
	platform VARCHAR NOT NULL, 
	account VARCHAR NOT NULL, 
	agent_id INTEGER, 
	configured BOOLEAN NOT NULL, enabled BOOLEAN DEFAULT 1 NOT NULL, secrets VARCHAR DEFAULT '{}' NOT NULL, endings VARCHAR DEFAULT '{}' NOT NULL, options VARCHAR DEFAULT '{}' NOT NULL, changed_at VARCHAR(32), 
	PRIMARY KEY (platform, account), 
	FOREIGN KEY(agent_id) REFERENCES agents (id)
);

CREATE TABLE known_people (
	platform VARCHAR NOT NULL, 
	user_id VARCHAR NOT NULL, 
	user_name VARCHAR NOT NULL, 
	added_at VARCHAR(32) NOT NULL, 
	added_by VARCHAR NOT NULL, 
	PRIMARY KEY (platform, user_id)
);

CREATE TABLE pairings (
	id INTEGER NOT NULL, 
	code VARCHAR NOT NULL, 
	platform VARCHAR NOT NULL, 
	account VARCHAR NOT NULL, 
	channel VARCHAR NOT NULL, 
	user_id VARCHAR NOT NULL, 
	user_name VARCHAR NOT NULL, 
	status VARCHAR NOT NULL, 
	created_at VARCHAR(32) NOT NULL, 
	expires_at VARCHAR(32) NOT NULL, 
	told_at VARCHAR(32) NOT NULL, 
	settled_at VARCHAR(32), 
	settled_by VARCHAR NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (code)
);

CREATE UNIQUE INDEX ux_pairings_pending ON pairings (platform, user_id) WHERE status = 'pending';

CREATE TABLE invitations (
	digest VARCHAR NOT NULL, 
	as_owner BOOLEAN NOT NULL, 
	created_at VARCHAR(32) NOT NULL, 
	created_by VARCHAR NOT NULL, 
	expires_at VARCHAR(32) NOT NULL, 
	PRIMARY KEY (digest)
);

CREATE TABLE ignored_lines (
	platform VARCHAR NOT NULL, 
	account VARCHAR NOT NULL, 
	channel VARCHAR NOT NULL, 
	reason VARCHAR NOT NULL, 
	count INTEGER NOT NULL, 
	first_at VARCHAR(32) NOT NULL, 
	last_at VARCHAR(32) NOT NULL, 
	PRIMARY KEY (platform, account, channel, reason)
);

CREATE INDEX ix_inbox_person ON inbox (platform, user_id, pace, received_at);

CREATE INDEX ix_agents_routing ON agents (status, id, slug, name, role);

CREATE INDEX ix_pairings_person ON pairings (platform, user_id);

CREATE VIRTUAL TABLE memory_index USING fts5(agent_id, words, content='memory_facts', content_rowid='id', tokenize="unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc' tokenchars '+#_'");

CREATE TRIGGER memory_facts_added AFTER INSERT ON memory_facts BEGIN INSERT INTO memory_index (rowid, agent_id, words) VALUES (new.id, new.agent_id, new.words); END;

CREATE TRIGGER memory_facts_changed AFTER UPDATE OF agent_id, words ON memory_facts BEGIN INSERT INTO memory_index (memory_index, rowid, agent_id, words) VALUES ('delete', old.id, old.agent_id, old.words); INSERT INTO memory_index (rowid, agent_id, words) VALUES (new.id, new.agent_id, new.words); END;

CREATE TRIGGER memory_facts_removed AFTER DELETE ON memory_facts BEGIN INSERT INTO memory_index (memory_index, rowid, agent_id, words) VALUES ('delete', old.id, old.agent_id, old.words); END;

CREATE TABLE memory_state (
	id INTEGER NOT NULL, 
	agent_id INTEGER NOT NULL, 
	place VARCHAR NOT NULL, 
	"key" VARCHAR NOT NULL, 
	value VARCHAR NOT NULL, 
	updated_at VARCHAR(32) NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(agent_id) REFERENCES agents (id), 
	UNIQUE (agent_id, place, "key")
);

CREATE TABLE skills (
	slug VARCHAR NOT NULL, 
	digest VARCHAR NOT NULL, 
	enabled BOOLEAN NOT NULL, 
	shipped BOOLEAN NOT NULL, 
	source VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	description VARCHAR NOT NULL, 
	category VARCHAR NOT NULL, 
	version VARCHAR NOT NULL, 
	author VARCHAR NOT NULL, 
	keywords VARCHAR NOT NULL, 
	patterns VARCHAR NOT NULL, 
	required_tools VARCHAR NOT NULL, 
	updated_at VARCHAR(32) NOT NULL, 
	body VARCHAR NOT NULL, 
	PRIMARY KEY (slug)
);

CREATE TABLE skill_problems (
	id INTEGER NOT NULL, 
	source VARCHAR NOT NULL, 
	problem VARCHAR NOT NULL, 
	PRIMARY KEY (id)
);

CREATE INDEX ix_queue_merged_into ON queue (merged_into);

CREATE INDEX ix_queue_parent_id ON queue (parent_id);

CREATE TABLE actions (
	id INTEGER NOT NULL, 
	job_id VARCHAR NOT NULL, 
	seq INTEGER NOT NULL, 
	tag VARCHAR NOT NULL, 
	subject VARCHAR NOT NULL, 
	state VARCHAR NOT NULL, 
	detail VARCHAR NOT NULL, 
	at VARCHAR(32) NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(job_id) REFERENCES queue (id), 
	UNIQUE (job_id, seq)
);

CREATE INDEX ix_conversations_last ON conversations (last_message_at, id);

CREATE INDEX ix_media_digest ON media (digest);

CREATE TABLE removed_conversations (
	id INTEGER NOT NULL, 
	at VARCHAR(32) NOT NULL, 
	actor VARCHAR NOT NULL, 
	PRIMARY KEY (id)
);

CREATE TABLE discarded_files (
	path VARCHAR NOT NULL, 
	at VARCHAR(32) NOT NULL, 
	PRIMARY KEY (path)
);

CREATE TABLE editions (
	name VARCHAR NOT NULL, 
	stamp INTEGER NOT NULL, 
	PRIMARY KEY (name)
);

CREATE TRIGGER agents_edition_insert AFTER INSERT ON agents BEGIN INSERT INTO editions (name, stamp) VALUES ('agents', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE TRIGGER agents_edition_update AFTER UPDATE ON agents BEGIN INSERT INTO editions (name, stamp) VALUES ('agents', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE TRIGGER agents_edition_delete AFTER DELETE ON agents BEGIN INSERT INTO editions (name, stamp) VALUES ('agents', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE TRIGGER skills_edition_insert AFTER INSERT ON skills BEGIN INSERT INTO editions (name, stamp) VALUES ('skills', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE TRIGGER skills_edition_update AFTER UPDATE ON skills BEGIN INSERT INTO editions (name, stamp) VALUES ('skills', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE TRIGGER skills_edition_delete AFTER DELETE ON skills BEGIN INSERT INTO editions (name, stamp) VALUES ('skills', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE TRIGGER accounts_edition_insert AFTER INSERT ON accounts BEGIN INSERT INTO editions (name, stamp) VALUES ('accounts', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE TRIGGER accounts_edition_update AFTER UPDATE OF PROVIDER, MODEL, PRIORITY, STATUS ON accounts BEGIN INSERT INTO editions (name, stamp) VALUES ('accounts', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE TRIGGER accounts_edition_delete AFTER DELETE ON accounts BEGIN INSERT INTO editions (name, stamp) VALUES ('accounts', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE TABLE sessions (
	id VARCHAR NOT NULL, 
	started_at VARCHAR(32) NOT NULL, 
	ended_at VARCHAR(32), 
	PRIMARY KEY (id)
);

CREATE INDEX ix_sessions_open ON sessions (id) WHERE ended_at IS NULL;

CREATE TABLE chat (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	session_id VARCHAR NOT NULL, 
	ts VARCHAR NOT NULL, 
	author VARCHAR NOT NULL, 
	text VARCHAR NOT NULL
);

CREATE INDEX ix_chat_session ON chat (session_id, id);

CREATE TABLE chat_cursor (
	agent_id VARCHAR NOT NULL, 
	last_id INTEGER DEFAULT '0' NOT NULL, 
	offered_id INTEGER DEFAULT '0' NOT NULL, 
	PRIMARY KEY (agent_id)
);

CREATE TABLE chat_reminders (
	agent_id VARCHAR NOT NULL, 
	job_id VARCHAR NOT NULL, 
	PRIMARY KEY (agent_id, job_id)
);

CREATE TABLE agent_tokens (
	id INTEGER NOT NULL, 
	agent_id INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	digest VARCHAR NOT NULL, 
	ending VARCHAR NOT NULL, 
	created_by VARCHAR NOT NULL, 
	created_at VARCHAR(32) NOT NULL, 
	last_used_at VARCHAR(32), 
	revoked_at VARCHAR(32), 
	PRIMARY KEY (id), 
	FOREIGN KEY(agent_id) REFERENCES agents (id), 
	UNIQUE (digest)
);

CREATE INDEX ix_agent_tokens_agent_id ON agent_tokens (agent_id);

CREATE TABLE settings_versions (
	version INTEGER NOT NULL, 
	values_json VARCHAR NOT NULL, 
	actor VARCHAR NOT NULL, 
	changed_at VARCHAR(32) NOT NULL, 
	PRIMARY KEY (version)
);

CREATE TABLE questions (
	id INTEGER NOT NULL, 
	job_id VARCHAR, 
	number INTEGER NOT NULL, 
	place INTEGER NOT NULL, 
	agent_id INTEGER, 
	kind VARCHAR NOT NULL, 
	status VARCHAR NOT NULL, 
	text VARCHAR NOT NULL, 
	context VARCHAR NOT NULL, 
	tool VARCHAR NOT NULL, 
	lane VARCHAR, 
	asked_of VARCHAR NOT NULL, 
	approvers VARCHAR NOT NULL, 
	answer VARCHAR NOT NULL, 
	answered_by VARCHAR NOT NULL, 
	inbox_id INTEGER, 
	asked_at VARCHAR(32) NOT NULL, 
	expires_at VARCHAR(32) NOT NULL, 
	answered_at VARCHAR(32), choices VARCHAR DEFAULT '' NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(job_id) REFERENCES queue (id), 
	FOREIGN KEY(agent_id) REFERENCES agents (id), 
	FOREIGN KEY(inbox_id) REFERENCES inbox (id), 
	UNIQUE (job_id, number, place)
);

CREATE INDEX ix_questions_open ON questions (lane) WHERE status = 'open';

CREATE INDEX ix_questions_outside ON questions (agent_id) WHERE job_id IS NULL;

CREATE TABLE heartbeat_configs (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	agent_id INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	schedule VARCHAR NOT NULL, 
	zone VARCHAR NOT NULL, 
	prompt VARCHAR NOT NULL, 
	platform VARCHAR NOT NULL, 
	account VARCHAR NOT NULL, 
	channel VARCHAR NOT NULL, 
	enabled BOOLEAN NOT NULL, 
	created_by VARCHAR NOT NULL, 
	created_at VARCHAR(32) NOT NULL, 
	updated_at VARCHAR(32) NOT NULL, 
	thread VARCHAR DEFAULT '' NOT NULL, 
	paused_reason VARCHAR DEFAULT '' NOT NULL, 
	last_job_id VARCHAR DEFAULT '' NOT NULL, 
	followed VARCHAR DEFAULT '' NOT NULL, 
	follow_error VARCHAR DEFAULT '' NOT NULL, 
	jitter_seconds INTEGER DEFAULT '0' NOT NULL, 
	runs INTEGER DEFAULT '0' NOT NULL, 
	skipped INTEGER DEFAULT '0' NOT NULL, 
	failures INTEGER DEFAULT '0' NOT NULL, 
	anchored_at VARCHAR(32) NOT NULL, 
	ended_at VARCHAR(32), 
	last_slot VARCHAR(32), 
	script VARCHAR DEFAULT '' NOT NULL, 
	FOREIGN KEY(agent_id) REFERENCES agents (id), 
	UNIQUE (agent_id, name)
);

CREATE INDEX ix_heartbeat_configs_agent_id ON heartbeat_configs (agent_id);

CREATE TABLE cron_jobs (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	agent_id INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	schedule VARCHAR NOT NULL, 
	zone VARCHAR NOT NULL, 
	prompt VARCHAR NOT NULL, 
	platform VARCHAR NOT NULL, 
	account VARCHAR NOT NULL, 
	channel VARCHAR NOT NULL, 
	enabled BOOLEAN NOT NULL, 
	created_by VARCHAR NOT NULL, 
	created_at VARCHAR(32) NOT NULL, 
	updated_at VARCHAR(32) NOT NULL, 
	thread VARCHAR DEFAULT '' NOT NULL, 
	paused_reason VARCHAR DEFAULT '' NOT NULL, 
	last_job_id VARCHAR DEFAULT '' NOT NULL, 
	followed VARCHAR DEFAULT '' NOT NULL, 
	follow_error VARCHAR DEFAULT '' NOT NULL, 
	jitter_seconds INTEGER DEFAULT '0' NOT NULL, 
	runs INTEGER DEFAULT '0' NOT NULL, 
	skipped INTEGER DEFAULT '0' NOT NULL, 
	failures INTEGER DEFAULT '0' NOT NULL, 
	anchored_at VARCHAR(32) NOT NULL, 
	ended_at VARCHAR(32), 
	last_slot VARCHAR(32), 
	FOREIGN KEY(agent_id) REFERENCES agents (id), 
	UNIQUE (agent_id, name)
);

CREATE INDEX ix_cron_jobs_agent_id ON cron_jobs (agent_id);

CREATE TRIGGER heartbeat_configs_edition_insert AFTER insert ON heartbeat_configs BEGIN INSERT INTO editions (name, stamp) VALUES ('schedules', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE TRIGGER heartbeat_configs_edition_update AFTER update OF agent_id, schedule, zone, jitter_seconds, enabled, paused_reason, anchored_at, ended_at ON heartbeat_configs BEGIN INSERT INTO editions (name, stamp) VALUES ('schedules', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE TRIGGER heartbeat_configs_edition_delete AFTER delete ON heartbeat_configs BEGIN INSERT INTO editions (name, stamp) VALUES ('schedules', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE TRIGGER cron_jobs_edition_insert AFTER insert ON cron_jobs BEGIN INSERT INTO editions (name, stamp) VALUES ('schedules', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE TRIGGER cron_jobs_edition_update AFTER update OF agent_id, schedule, zone, jitter_seconds, enabled, paused_reason, anchored_at, ended_at ON cron_jobs BEGIN INSERT INTO editions (name, stamp) VALUES ('schedules', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE TRIGGER cron_jobs_edition_delete AFTER delete ON cron_jobs BEGIN INSERT INTO editions (name, stamp) VALUES ('schedules', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE TABLE webhooks (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	path VARCHAR NOT NULL, 
	agent_id INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	prompt_template VARCHAR NOT NULL, 
	scheme VARCHAR NOT NULL, 
	secret VARCHAR NOT NULL, 
	last4 VARCHAR NOT NULL, 
	platform VARCHAR NOT NULL, 
	account VARCHAR NOT NULL, 
	channel VARCHAR NOT NULL, 
	thread VARCHAR NOT NULL, 
	per_minute INTEGER NOT NULL, 
	enabled BOOLEAN NOT NULL, 
	trigger_count INTEGER DEFAULT '0' NOT NULL, 
	refused_count INTEGER DEFAULT '0' NOT NULL, 
	last_triggered VARCHAR(32), 
	created_by VARCHAR NOT NULL, 
	created_at VARCHAR(32) NOT NULL, 
	updated_at VARCHAR(32) NOT NULL, 
	FOREIGN KEY(agent_id) REFERENCES agents (id), 
	UNIQUE (path)
);

CREATE INDEX ix_webhooks_agent_id ON webhooks (agent_id);

CREATE TABLE webhook_deliveries (
	webhook_id INTEGER NOT NULL, 
	delivery_id VARCHAR NOT NULL, 
	digest VARCHAR NOT NULL, 
	job_id VARCHAR NOT NULL, 
	received_at VARCHAR(32) NOT NULL, 
	PRIMARY KEY (webhook_id, delivery_id), 
	FOREIGN KEY(webhook_id) REFERENCES webhooks (id), 
	UNIQUE (webhook_id, digest)
);

CREATE INDEX ix_webhook_deliveries_received_at ON webhook_deliveries (received_at);

CREATE INDEX ix_queue_schedule ON queue (schedule, turn) WHERE schedule IS NOT NULL;

CREATE INDEX ix_queue_webhook_id ON queue (webhook_id, turn) WHERE webhook_id IS NOT NULL;

CREATE TABLE channel_cursors (
	platform VARCHAR NOT NULL, 
	account VARCHAR NOT NULL, 
	channel VARCHAR NOT NULL, 
	thread VARCHAR NOT NULL, 
	mark VARCHAR NOT NULL, 
	direct BOOLEAN NOT NULL, 
	seen_at VARCHAR(32) NOT NULL, 
	PRIMARY KEY (platform, account, channel, thread)
);

CREATE TABLE disabled_channels (
	platform VARCHAR NOT NULL, 
	account VARCHAR NOT NULL, 
	channel VARCHAR NOT NULL, 
	reason VARCHAR NOT NULL, 
	disabled_at VARCHAR(32) NOT NULL, 
	PRIMARY KEY (platform, account, channel)
);

CREATE TRIGGER bot_instances_edition_insert AFTER INSERT ON bot_instances BEGIN INSERT INTO editions (name, stamp) VALUES ('bot_instances', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE TRIGGER bot_instances_edition_update AFTER UPDATE ON bot_instances BEGIN INSERT INTO editions (name, stamp) VALUES ('bot_instances', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE TRIGGER bot_instances_edition_delete AFTER DELETE ON bot_instances BEGIN INSERT INTO editions (name, stamp) VALUES ('bot_instances', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE INDEX ix_messages_conversation ON messages (conversation_id, id, superseded, role, token_estimate, inbox_id, plain_chars);

CREATE INDEX ix_memory_facts_surest ON memory_facts (agent_id, place, confidence, coalesce(last_accessed, created_at));

CREATE TABLE replay_batches (
	id VARCHAR NOT NULL, 
	action VARCHAR NOT NULL, 
	edits VARCHAR NOT NULL, 
	wanted VARCHAR NOT NULL, 
	actor VARCHAR NOT NULL, 
	origin VARCHAR NOT NULL, 
	total INTEGER NOT NULL, 
	stopped BOOLEAN NOT NULL, 
	created_at VARCHAR(32) NOT NULL, 
	ended_at VARCHAR(32), 
	PRIMARY KEY (id)
);

CREATE TABLE replay_items (
	batch_id VARCHAR NOT NULL, 
	place INTEGER NOT NULL, 
	job_id VARCHAR NOT NULL, 
	lane VARCHAR NOT NULL, 
	state VARCHAR NOT NULL, 
	began VARCHAR NOT NULL, 
	problem VARCHAR NOT NULL, 
	at VARCHAR(32), 
	PRIMARY KEY (batch_id, place), 
	FOREIGN KEY(batch_id) REFERENCES replay_batches (id)
);

CREATE TABLE ended_logins (
	id VARCHAR NOT NULL, 
	expires_at VARCHAR(32) NOT NULL, 
	PRIMARY KEY (id)
);

CREATE INDEX ix_replay_items_state ON replay_items (batch_id, state, place, lane);

CREATE INDEX ix_replay_batches_open ON replay_batches (id) WHERE ended_at IS NULL;

CREATE INDEX ix_replay_items_began ON replay_items (began) WHERE state = 'begun';

CREATE INDEX ix_audit_log_actor ON audit_log (actor, at);

CREATE INDEX ix_audit_log_action ON audit_log (action, at);

CREATE INDEX ix_audit_log_subject ON audit_log (subject, at);

CREATE INDEX ix_queue_listed ON queue (created_at, id, status, kind, agent_id, platform, error, what_if);

CREATE INDEX ix_queue_inbox_id ON queue (inbox_id, id);

CREATE INDEX ix_queue_told ON queue (error, reason, task, id) WHERE error != '' OR reason != '' OR task != '';

CREATE INDEX ix_job_steps_failed ON job_steps (job_id, id, step) WHERE state = 'failed';

CREATE INDEX ix_usage_log_conversation ON usage_log (conversation_id, state, cost_usd);

CREATE TABLE usage_days (
	day VARCHAR NOT NULL, 
	agent_id INTEGER NOT NULL, 
	client_id INTEGER NOT NULL, 
	platform VARCHAR NOT NULL, 
	provider VARCHAR NOT NULL, 
	model VARCHAR NOT NULL, 
	account VARCHAR NOT NULL, 
	purpose VARCHAR NOT NULL, 
	calls INTEGER NOT NULL, 
	failures INTEGER NOT NULL, 
	interrupted INTEGER NOT NULL, 
	input_tokens INTEGER NOT NULL, 
	output_tokens INTEGER NOT NULL, 
	cached_tokens INTEGER NOT NULL, 
	cost_usd FLOAT NOT NULL, 
	known INTEGER NOT NULL, 
	unknown_cost INTEGER NOT NULL, 
	interrupted_cost_usd FLOAT NOT NULL, 
	estimated INTEGER NOT NULL, 
	PRIMARY KEY (day, agent_id, client_id, platform, provider, model, account, purpose)
);

CREATE TRIGGER usage_log_added AFTER INSERT ON usage_log BEGIN INSERT INTO usage_days (day, agent_id, client_id, platform, provider, model, account, purpose, calls, failures, interrupted, input_tokens, output_tokens, cached_tokens, cost_usd, known, unknown_cost, interrupted_cost_usd, estimated) SELECT substr(new.at, 1, 10), coalesce(new.agent_id, 0), coalesce(new.client_id, 0), coalesce((SELECT platform FROM queue WHERE queue.id = new.job_id), ''), new.provider, new.model, new.account, new.purpose, 1 * (1), 1 * (new.state = 'failed'), 1 * (new.state = 'interrupted'), 1 * (iif(new.state <> 'interrupted', new.input_tokens, 0)), 1 * (iif(new.state <> 'interrupted', new.output_tokens, 0)), 1 * (iif(new.state <> 'interrupted', new.cached_tokens, 0)), 1 * (iif(new.state <> 'interrupted', coalesce(new.cost_usd, 0.0), 0.0)), 1 * (new.state <> 'interrupted' AND new.cost_usd IS NOT NULL), 1 * (new.cost_usd IS NULL AND (new.state = 'answered' OR new.input_tokens + new.output_tokens > 0)), 1 * (iif(new.state = 'interrupted', coalesce(new.cost_usd, 0.0), 0.0)), 1 * (new.state = 'interrupted' AND new.cost_usd IS NOT NULL) WHERE true ON CONFLICT (day, agent_id, client_id, platform, provider, model, account, purpose) DO UPDATE SET calls = calls + excluded.calls, failures = failures + excluded.failures, interrupted = interrupted + excluded.interrupted, input_tokens = input_tokens + excluded.input_tokens, output_tokens = output_tokens + excluded.output_tokens, cached_tokens = cached_tokens + excluded.cached_tokens, cost_usd = cost_usd + excluded.cost_usd, known = known + excluded.known, unknown_cost = unknown_cost + excluded.unknown_cost, interrupted_cost_usd = interrupted_cost_usd + excluded.interrupted_cost_usd, estimated = estimated + excluded.estimated; END;

CREATE TRIGGER usage_log_changed AFTER UPDATE ON usage_log BEGIN INSERT INTO usage_days (day, agent_id, client_id, platform, provider, model, account, purpose, calls, failures, interrupted, input_tokens, output_tokens, cached_tokens, cost_usd, known, unknown_cost, interrupted_cost_usd, estimated) SELECT substr(old.at, 1, 10), coalesce(old.agent_id, 0), coalesce(old.client_id, 0), coalesce((SELECT platform FROM queue WHERE queue.id = old.job_id), ''), old.provider, old.model, old.account, old.purpose, -1 * (1), -1 * (old.state = 'failed'), -1 * (old.state = 'interrupted'), -1 * (iif(old.state <> 'interrupted', old.input_tokens, 0)), -1 * (iif(old.state <> 'interrupted', old.output_tokens, 0)), -1 * (iif(old.state <> 'interrupted', old.cached_tokens, 0)), -1 * (iif(old.state <> 'interrupted', coalesce(old.cost_usd, 0.0), 0.0)), -1 * (old.state <> 'interrupted' AND old.cost_usd IS NOT NULL), -1 * (old.cost_usd IS NULL AND (old.state = 'answered' OR old.input_tokens + old.output_tokens > 0)), -1 * (iif(old.state = 'interrupted', coalesce(old.cost_usd, 0.0), 0.0)), -1 * (old.state = 'interrupted' AND old.cost_usd IS NOT NULL) WHERE true ON CONFLICT (day, agent_id, client_id, platform, provider, model, account, purpose) DO UPDATE SET calls = calls + excluded.calls, failures = failures + excluded.failures, interrupted = interrupted + excluded.interrupted, input_tokens = input_tokens + excluded.input_tokens, output_tokens = output_tokens + excluded.output_tokens, cached_tokens = cached_tokens + excluded.cached_tokens, cost_usd = cost_usd + excluded.cost_usd, known = known + excluded.known, unknown_cost = unknown_cost + excluded.unknown_cost, interrupted_cost_usd = interrupted_cost_usd + excluded.interrupted_cost_usd, estimated = estimated + excluded.estimated; DELETE FROM usage_days WHERE day = substr(old.at, 1, 10) AND calls = 0; INSERT INTO usage_days (day, agent_id, client_id, platform, provider, model, account, purpose, calls, failures, interrupted, input_tokens, output_tokens, cached_tokens, cost_usd, known, unknown_cost, interrupted_cost_usd, estimated) SELECT substr(new.at, 1, 10), coalesce(new.agent_id, 0), coalesce(new.client_id, 0), coalesce((SELECT platform FROM queue WHERE queue.id = new.job_id), ''), new.provider, new.model, new.account, new.purpose, 1 * (1), 1 * (new.state = 'failed'), 1 * (new.state = 'interrupted'), 1 * (iif(new.state <> 'interrupted', new.input_tokens, 0)), 1 * (iif(new.state <> 'interrupted', new.output_tokens, 0)), 1 * (iif(new.state <> 'interrupted', new.cached_tokens, 0)), 1 * (iif(new.state <> 'interrupted', coalesce(new.cost_usd, 0.0), 0.0)), 1 * (new.state <> 'interrupted' AND new.cost_usd IS NOT NULL), 1 * (new.cost_usd IS NULL AND (new.state = 'answered' OR new.input_tokens + new.output_tokens > 0)), 1 * (iif(new.state = 'interrupted', coalesce(new.cost_usd, 0.0), 0.0)), 1 * (new.state = 'interrupted' AND new.cost_usd IS NOT NULL) WHERE true ON CONFLICT (day, agent_id, client_id, platform, provider, model, account, purpose) DO UPDATE SET calls = calls + excluded.calls, failures = failures + excluded.failures, interrupted = interrupted + excluded.interrupted, input_tokens = input_tokens + excluded.input_tokens, output_tokens = output_tokens + excluded.output_tokens, cached_tokens = cached_tokens + excluded.cached_tokens, cost_usd = cost_usd + excluded.cost_usd, known = known + excluded.known, unknown_cost = unknown_cost + excluded.unknown_cost, interrupted_cost_usd = interrupted_cost_usd + excluded.interrupted_cost_usd, estimated = estimated + excluded.estimated; END;

CREATE TRIGGER usage_log_removed AFTER DELETE ON usage_log BEGIN INSERT INTO usage_days (day, agent_id, client_id, platform, provider, model, account, purpose, calls, failures, interrupted, input_tokens, output_tokens, cached_tokens, cost_usd, known, unknown_cost, interrupted_cost_usd, estimated) SELECT substr(old.at, 1, 10), coalesce(old.agent_id, 0), coalesce(old.client_id, 0), coalesce((SELECT platform FROM queue WHERE queue.id = old.job_id), ''), old.provider, old.model, old.account, old.purpose, -1 * (1), -1 * (old.state = 'failed'), -1 * (old.state = 'interrupted'), -1 * (iif(old.state <> 'interrupted', old.input_tokens, 0)), -1 * (iif(old.state <> 'interrupted', old.output_tokens, 0)), -1 * (iif(old.state <> 'interrupted', old.cached_tokens, 0)), -1 * (iif(old.state <> 'interrupted', coalesce(old.cost_usd, 0.0), 0.0)), -1 * (old.state <> 'interrupted' AND old.cost_usd IS NOT NULL), -1 * (old.cost_usd IS NULL AND (old.state = 'answered' OR old.input_tokens + old.output_tokens > 0)), -1 * (iif(old.state = 'interrupted', coalesce(old.cost_usd, 0.0), 0.0)), -1 * (old.state = 'interrupted' AND old.cost_usd IS NOT NULL) WHERE true ON CONFLICT (day, agent_id, client_id, platform, provider, model, account, purpose) DO UPDATE SET calls = calls + excluded.calls, failures = failures + excluded.failures, interrupted = interrupted + excluded.interrupted, input_tokens = input_tokens + excluded.input_tokens, output_tokens = output_tokens + excluded.output_tokens, cached_tokens = cached_tokens + excluded.cached_tokens, cost_usd = cost_usd + excluded.cost_usd, known = known + excluded.known, unknown_cost = unknown_cost + excluded.unknown_cost, interrupted_cost_usd = interrupted_cost_usd + excluded.interrupted_cost_usd, estimated = estimated + excluded.estimated; DELETE FROM usage_days WHERE day = substr(old.at, 1, 10) AND calls = 0; END;

CREATE INDEX ix_deliveries_key ON deliveries ("key");

CREATE INDEX ix_deliveries_known ON deliveries (platform, account, channel, platform_message_id) WHERE platform_message_id <> '';

CREATE TABLE moved_channels (
	platform VARCHAR NOT NULL, 
	account VARCHAR NOT NULL, 
	channel VARCHAR NOT NULL, 
	moved_to VARCHAR NOT NULL, 
	moved_at VARCHAR(32) NOT NULL, 
	PRIMARY KEY (platform, account, channel)
);

CREATE TABLE job_files (
	id INTEGER NOT NULL, 
	job_id VARCHAR NOT NULL, 
	digest VARCHAR NOT NULL, 
	filename VARCHAR NOT NULL, 
	content_type VARCHAR NOT NULL, 
	number INTEGER NOT NULL, 
	place INTEGER NOT NULL, 
	size INTEGER NOT NULL, 
	caption VARCHAR NOT NULL, 
	created_at VARCHAR(32) NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(job_id) REFERENCES queue (id), 
	UNIQUE (job_id, digest, filename)
);

CREATE INDEX ix_job_files_digest ON job_files (digest);

CREATE TABLE drafts (
	job_id VARCHAR NOT NULL, 
	number INTEGER NOT NULL, 
	text VARCHAR NOT NULL, 
	revision INTEGER NOT NULL, 
	state VARCHAR NOT NULL, 
	platform_message_id VARCHAR NOT NULL, 
	tried_at VARCHAR(32), 
	begun_at VARCHAR(32) NOT NULL, 
	updated_at VARCHAR(32) NOT NULL, 
	PRIMARY KEY (job_id), 
	FOREIGN KEY(job_id) REFERENCES queue (id)
);

CREATE TABLE tool_pictures (
	id INTEGER NOT NULL, 
	job_id VARCHAR NOT NULL, 
	number INTEGER NOT NULL, 
	place INTEGER NOT NULL, 
	seq INTEGER NOT NULL, 
	digest VARCHAR NOT NULL, 
	content_type VARCHAR NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(job_id) REFERENCES queue (id), 
	UNIQUE (job_id, number, place, seq)
);

CREATE INDEX ix_tool_pictures_digest ON tool_pictures (digest);

CREATE TRIGGER agent_channels_edition_insert AFTER INSERT ON agent_channels BEGIN INSERT INTO editions (name, stamp) VALUES ('agent_channels', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE TRIGGER agent_channels_edition_update AFTER UPDATE ON agent_channels BEGIN INSERT INTO editions (name, stamp) VALUES ('agent_channels', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE TRIGGER agent_channels_edition_delete AFTER DELETE ON agent_channels BEGIN INSERT INTO editions (name, stamp) VALUES ('agent_channels', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE TRIGGER compactions_edition_insert AFTER INSERT ON compactions BEGIN INSERT INTO editions (name, stamp) VALUES ('compactions', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE TRIGGER compactions_edition_update AFTER UPDATE ON compactions BEGIN INSERT INTO editions (name, stamp) VALUES ('compactions', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE TRIGGER compactions_edition_delete AFTER DELETE ON compactions BEGIN INSERT INTO editions (name, stamp) VALUES ('compactions', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE TRIGGER memory_state_edition_insert AFTER INSERT ON memory_state BEGIN INSERT INTO editions (name, stamp) VALUES ('memory_state', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE TRIGGER memory_state_edition_update AFTER UPDATE ON memory_state BEGIN INSERT INTO editions (name, stamp) VALUES ('memory_state', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

CREATE TRIGGER memory_state_edition_delete AFTER DELETE ON memory_state BEGIN INSERT INTO editions (name, stamp) VALUES ('memory_state', random()) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp; END;

INSERT INTO sqlite_sequence (name, seq) VALUES ('heartbeat_configs', 0), ('cron_jobs', 0);

INSERT INTO memory_index (memory_index) VALUES ('rebuild');
