// What people do with the API, with the official TypeScript SDK. The same text
// runs with both generations: it imports whichever is installed beside it.
//
//   node programs.mjs <url> <key> <name> [program…]
//
// Each program prints one line, "ok <program>" or "not ok <program>: why".
import assert from 'node:assert/strict';
import Anthropic, { APIError } from '@anthropic-ai/sdk';

const [url, key, name, ...chosen] = process.argv.slice(2);
const client = new Anthropic({ baseURL: url, apiKey: key });
const { agents, environments, sessions } = client.beta;
const model = 'claude-opus-5-5';

// A message that tells the scripted model what to say.
const script = (tag, ...steps) => `<<${tag}>> SCRIPT${JSON.stringify(steps)}`;
const bash = (command) => ({ tool: 'bash', input: { command } });
const text = (t) => ({ type: 'text', text: t });
const message = (t) => ({ type: 'user.message', content: [text(t)] });

const toolset = (policy = 'always_allow') => ({
  type: 'agent_toolset_20260401',
  default_config: { permission_policy: { type: policy } },
  configs: [
    { name: 'web_fetch', enabled: false },
    { name: 'web_search', enabled: false },
  ],
});

class Player {
  constructor(tag) {
    this.tag = tag;
  }
  async environment() {
    this.env ??= (await environments.create({ name: this.tag, config: { type: 'cloud', networking: { type: 'unrestricted' } } })).id;
    return this.env;
  }
  agent(...tools) {
    return agents.create({ name: this.tag, model, system: 'You are a mouse.', tools });
  }
  async session(...tools) {
    return this.sessionOf((await this.agent(...tools)).id);
  }
  async sessionOf(agent) {
    return sessions.create({ agent, environment_id: await this.environment(), title: this.tag });
  }
  // Follows a session, one event at a time.
  async follow(id, params) {
    const stream = await sessions.events.stream(id, params);
    return new Follower(stream);
  }
  async send(id, ...events) {
    const res = await sessions.events.send(id, { events });
    assert.deepEqual(res.data.map((e) => e.type), events.map((e) => e.type));
    return res.data;
  }
  script(...steps) {
    return script(this.tag, ...steps);
  }
  async turn(id) {
    const f = await this.follow(id);
    await this.send(id, message(this.script({ text: 'yes' })));
    await f.until(idle('end_turn'));
    f.close();
  }
}

class Follower {
  constructor(stream) {
    this.stream = stream;
    this.events = stream[Symbol.asyncIterator]();
    this.seen = [];
  }
  async until(wanted, see = () => {}) {
    for (;;) {
      const { value: e, done } = await this.events.next();
      if (done) throw new Error('the stream ended');
      this.seen.push(e);
      see(e);
      if (wanted(e)) return e;
    }
  }
  close() {
    this.stream.controller.abort();
  }
}

const kind = (t) => (e) => e.type === t;
const idle = (reason) => (e) => e.type === 'session.status_idle' && e.stop_reason.type === reason;
const ids = (events) => [...new Set(events.filter((e) => e.id && e.processed_at).map((e) => e.id))];

async function history(id, params = {}) {
  const all = [];
  for await (const e of sessions.events.list(id, params)) all.push(e);
  return all;
}

async function refused(promise, ...statuses) {
  try {
    await promise;
  } catch (e) {
    assert.ok(e instanceof APIError, `not an error of the API: ${e}`);
    assert.ok(statuses.includes(e.status), `status ${e.status}: ${e.message}`);
    assert.ok(e.requestID, 'no request id');
    return e;
  }
  assert.fail(`it was not refused; want ${statuses}`);
}

const programs = {
  async quickstart(p) {
    const s = await p.session(toolset());
    assert.equal(s.status, 'idle');
    assert.equal(s.agent.name, p.tag);
    const f = await p.follow(s.id);
    await p.send(s.id, message(p.script(bash('echo squeak > /tmp/said && cat /tmp/said'), { text: 'It squeaked.', chunks: 4 })));
    await f.until(idle('end_turn'));
    const said = f.seen.filter(kind('agent.message')).map((e) => e.content[0].text).join('');
    assert.equal(said, 'It squeaked.');
    assert.match(JSON.stringify(f.seen.find(kind('agent.tool_result')).content), /squeak/);
    assert.equal((await sessions.retrieve(s.id)).status, 'idle');
    assert.deepEqual(ids(await history(s.id)), ids(f.seen));
    assert.equal((await sessions.delete(s.id)).id, s.id);
    await f.until(kind('session.deleted'));
    await refused(sessions.retrieve(s.id), 404);
  },

  async confirmation(p) {
    const s = await p.session(toolset('always_ask'));
    const f = await p.follow(s.id);
    const tools = ['echo first', 'echo second > /tmp/second'].map((command) => ({ name: 'bash', input: { command } }));
    await p.send(s.id, message(p.script({ tools }, { text: 'As you wish.' })));
    const both = (await f.until(idle('requires_action'))).stop_reason.event_ids;
    assert.equal(both.length, 2);
    await p.send(s.id, { type: 'user.tool_confirmation', tool_use_id: both[0], result: 'allow' });
    assert.deepEqual((await f.until(idle('requires_action'))).stop_reason.event_ids, [both[1]]);
    await p.send(s.id, { type: 'user.tool_confirmation', tool_use_id: both[1], result: 'deny', deny_message: 'not on my watch' });
    await f.until(idle('end_turn'));
    const results = new Map(f.seen.filter(kind('agent.tool_result')).map((e) => [e.tool_use_id, e]));
    assert.ok(!results.get(both[0]).is_error);
    assert.match(JSON.stringify(results.get(both[0])), /first/);
    assert.ok(results.get(both[1]).is_error);
    assert.match(JSON.stringify(results.get(both[1])), /not on my watch/);
    await refused(sessions.events.send(s.id, { events: [{ type: 'user.tool_confirmation', tool_use_id: both[1], result: 'allow' }] }), 400, 409);
    f.close();
  },

  async 'custom tool'(p) {
    const lookup = {
      type: 'custom', name: 'lookup', description: 'Looks a word up.',
      input_schema: { type: 'object', properties: { word: { type: 'string' } }, required: ['word'] },
    };
    const s = await p.session(toolset(), lookup);
    const f = await p.follow(s.id);
    const word = (w) => ({ tool: 'lookup', input: { word: w } });
    await p.send(s.id, message(p.script(word('cheese'), word('cat'), { text: 'I see.' })));
    for (const w of ['cheese', 'cat']) {
      const call = await f.until(kind('agent.custom_tool_use'));
      assert.deepEqual(call.input, { word: w });
      assert.deepEqual((await f.until(idle('requires_action'))).stop_reason.event_ids, [call.id]);
      await p.send(s.id, { type: 'user.custom_tool_result', custom_tool_use_id: call.id, content: [text(`about ${w}`)], is_error: w === 'cat' });
    }
    await f.until(idle('end_turn'));
    f.close();
  },

  async interrupt(p) {
    const s = await p.session(toolset());
    const f = await p.follow(s.id);
    for (const [step, at] of [
      [bash('sleep 600'), 'agent.tool_use'],
      [{ text: 'and so on '.repeat(200), chunks: 200, chunk_delay_ms: 1000 }, 'span.model_request_start'],
    ]) {
      await p.send(s.id, message(p.script(step, { text: 'never said' })));
      await f.until(kind(at));
      await p.send(s.id, { type: 'user.interrupt' }, message(p.script({ text: 'instead' })));
      await f.until(idle('end_turn'));
      assert.equal((await f.until(kind('agent.message'))).content[0].text, 'instead');
      await f.until(idle('end_turn'));
    }
    f.close();
  },

  async previews(p) {
    const s = await p.session(toolset());
    const f = await p.follow(s.id, { event_deltas: ['agent.message'] });
    const whole = 'Mice are small. They are also quick, and they sleep a lot.';
    await p.send(s.id, message(p.script({ text: whole, chunks: 12, chunk_delay_ms: 20 })));
    let written = '';
    await f.until(idle('end_turn'), (e) => {
      if (e.type === 'event_delta') {
        written += e.delta.content.text;
        assert.ok(whole.startsWith(written), written);
      }
    });
    assert.notEqual(written, '');
    const start = f.seen.find(kind('event_start'));
    const said = f.seen.find(kind('agent.message'));
    assert.equal(start.event.id, said.id);
    assert.equal(said.content[0].text, whole);
    f.close();
  },

  async pagination(p) {
    const begun = new Date(Date.now() - 1000).toISOString();
    const made = [];
    for (let i = 0; i < 5; i++) made.push((await p.agent()).id);
    const listed = [];
    for await (const a of agents.list({ limit: 2, 'created_at[gte]': begun })) if (made.includes(a.id)) listed.push(a.id);
    assert.deepEqual(listed.sort(), [...made].sort());
    const own = [];
    for (let i = 0; i < 3; i++) own.push((await p.sessionOf(made[0])).id);
    for (const order of ['asc', 'desc']) {
      const got = [];
      for await (const s of sessions.list({ agent_id: made[0], limit: 1, order, statuses: ['idle', 'running'] })) got.push(s.id);
      assert.deepEqual(order === 'asc' ? got : got.reverse(), own);
    }
    await p.turn(own[0]);
    const whole = ids(await history(own[0]));
    for (const limit of [1, 3, 7]) assert.deepEqual(ids(await history(own[0], { limit })), whole);
    assert.deepEqual(ids(await history(own[0], { limit: 2, order: 'desc' })).reverse(), whole);
    const models = [];
    for await (const m of client.models.list()) models.push(m.id);
    assert.ok(models.length > 0);
  },

  async 'update and archive'(p) {
    const a = await p.agent(toolset());
    const second = await agents.update(a.id, { version: 1, system: 'You are a rat.' });
    assert.equal(second.version, 2);
    assert.equal((await agents.update(a.id, { system: 'You are a rat.' })).version, 2);
    await refused(agents.update(a.id, { version: 1, name: 'late' }), 409);
    assert.equal((await agents.retrieve(a.id, { version: 1 })).system, 'You are a mouse.');
    const s = await p.sessionOf(a.id);
    let now = await sessions.update(s.id, { title: 'renamed', metadata: { colour: 'grey', tail: 'long' } });
    assert.equal(now.title, 'renamed');
    now = await sessions.update(s.id, { metadata: { tail: null } });
    assert.deepEqual(now.metadata, { colour: 'grey' });
    await p.turn(s.id);
    assert.equal((await environments.update(p.env, { description: 'a hole in the wall' })).description, 'a hole in the wall');
    const archived = await sessions.archive(s.id);
    assert.equal(archived.status, 'terminated');
    await refused(sessions.events.send(s.id, { events: [message('hello?')] }), 400, 409);
    assert.equal((await history(s.id)).at(-1).type, 'session.status_terminated');
    await agents.archive(a.id);
    await refused(p.sessionOf(a.id), 400, 409);
    await environments.archive(p.env);
    await environments.delete(p.env);
    await refused(environments.retrieve(p.env), 404);
  },

  async reconnect(p) {
    const s = await p.session(toolset());
    await p.send(s.id, message(p.script(...Array.from({ length: 8 }, () => bash('sleep 0.05')), { text: 'There.' })));
    const seen = [];
    const take = (e) => {
      if (!e.id || !e.processed_at || seen.includes(e.id)) return false;
      seen.push(e.id);
      return true;
    };
    for (let done = false; !done; ) {
      const f = await p.follow(s.id);
      for (const e of await history(s.id)) {
        take(e);
        done = e.type === 'session.status_idle';
      }
      let n = 0;
      if (!done) {
        const last = await f.until((e) => (take(e) && ++n === 5) || idle('end_turn')(e));
        done = idle('end_turn')(last);
      }
      f.close();
    }
    assert.deepEqual(seen, ids(await history(s.id)));
  },

  async threads(p) {
    const s = await p.session(toolset());
    await p.turn(s.id);
    const all = [];
    for await (const t of sessions.threads.list(s.id)) all.push(t);
    assert.equal(all.length, 1);
    assert.equal(all[0].parent_thread_id, null);
    const t = await sessions.threads.retrieve(all[0].id, { session_id: s.id });
    assert.equal(t.status, 'idle');
    const f = new Follower(await sessions.threads.events.stream(t.id, { session_id: s.id }));
    await p.send(s.id, message(p.script({ text: 'threaded' })));
    assert.equal((await f.until(kind('agent.message'))).content[0].text, 'threaded');
    f.close();
  },

  // Its requests have names: sent again, as the client does by itself, they are
  // the same ones.
  async keys(p) {
    const a = await p.agent(toolset());
    const environment_id = await p.environment();
    const under = (key) => ({ headers: { 'Idempotency-Key': key }, maxRetries: 8 });
    const create = (title) => sessions.create({ agent: a.id, environment_id, title }, under(p.tag));
    const s = await create('once');
    assert.equal((await create('once')).id, s.id);
    await refused(create('twice'), 409);
    const said = p.script({ text: 'Once.' });
    const send = (t) => sessions.events.send(s.id, { events: [message(t)] }, under(`${p.tag}-message`));
    const sent = await send(said);
    assert.equal(sent.data.length, 1);
    assert.equal((await send(said)).data[0].id, sent.data[0].id);
    await refused(send('something else'), 409);
    await p.turn(s.id); // whatever was asked before is done by then
    const log = await history(s.id);
    assert.equal(log.filter((e) => e.type === 'user.message' && e.content[0].text === said).length, 1);
    assert.equal(log.filter((e) => e.type === 'agent.message' && e.content[0].text === 'Once.').length, 1);
    const all = [];
    for await (const one of sessions.list({ agent_id: a.id })) all.push(one.id);
    assert.deepEqual(all, [s.id]);
  },

  // Follows a session from its beginning, and another time from where it was
  // left, without listing anything.
  async 'last event'(p) {
    const s = await p.session(toolset());
    await p.send(s.id, message(p.script(bash('true'), bash('sleep 0.2'), { text: 'There.' })));
    const seen = [];
    for (let last = '0', done = false; !done; ) {
      const noted = new Notes();
      const stream = await noted.client().beta.sessions.events.stream(s.id, {}, { headers: { 'Last-Event-ID': last } });
      const f = new Follower(stream);
      let n = 0;
      const e = await f.until((e) => {
        if (!e.processed_at) return false;
        assert.ok(!seen.includes(e.id), `${e.type} behind ${last} came again`);
        seen.push(e.id);
        return ++n === 3 || idle('end_turn')(e);
      });
      done = idle('end_turn')(e);
      last = noted.of(e.id);
      f.close();
    }
    assert.deepEqual(seen, ids(await history(s.id)));
    await refused(sessions.events.stream(s.id, {}, { headers: { 'Last-Event-ID': 'yesterday' } }), 400);
  },
};

// Notes keeps the ids that frames have beside those of their events. The SDK does
// not show them.
class Notes {
  text = '';
  client() {
    return new Anthropic({
      baseURL: url,
      apiKey: key,
      fetch: async (...args) => {
        const res = await fetch(...args);
        const decoder = new TextDecoder();
        const note = (chunk, out) => {
          this.text += decoder.decode(chunk, { stream: true });
          out.enqueue(chunk);
        };
        return new Response(res.body.pipeThrough(new TransformStream({ transform: note })), res);
      },
    });
  }
  // The id of the frame that an event came in last.
  of(event) {
    const frames = this.text.split('\n\n').filter((f) => f.startsWith('id: ') && f.includes(`"id":"${event}"`));
    return frames.at(-1).match(/^id: (\d+)/)[1];
  }
}

const wanted = Object.entries(programs).filter(([n]) => chosen.length === 0 || chosen.includes(n));
const outcomes = await Promise.all(
  wanted.map(async ([n, play]) => {
    try {
      await play(new Player(`${name}-${n.replaceAll(' ', '-')}`));
      console.log(`ok ${n}`);
      return true;
    } catch (e) {
      console.log(`not ok ${n}: ${String(e.stack ?? e).replaceAll('\n', ' | ')}`);
      return false;
    }
  }),
);
process.exit(outcomes.every(Boolean) ? 0 : 1);
