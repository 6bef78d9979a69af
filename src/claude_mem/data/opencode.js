// claude-mem for OpenCode (put here by claude-mem): hands over what happens, and gives the model what is remembered.
//
// A guest here: it writes nothing to the terminal and nothing into OpenCode's own records, swallows every error, and
// waits in one place only, before a request to the model, and not long. What it hands over goes through the same
// program as for every other agent, one event after another, so that they are kept in the order in which they happened.

import { spawn, spawnSync } from "node:child_process"

const LAUNCHER = "@LAUNCHER@"
const HOST = "opencode"
const ANSWER_MS = 2000 // the longest that a request to the model waits for memory
const HOOK_MS = 6000 // the hook ends by itself well before
const FLUSH_MS = 5000

// --- one event after another ---------------------------------------------------------------------------------------

const waiting = new Set()
let last = Promise.resolve("")

function tell(command, fields) {
  const job = { command, input: JSON.stringify(fields) }
  waiting.add(job)
  last = last.then(() => run(job)).catch(() => "")
  return last
}

// The text that memory answers, or "".
function run(job) {
  waiting.delete(job)
  return new Promise((resolve) => {
    const child = spawn(LAUNCHER, [job.command, HOST], { cwd: "/", stdio: ["pipe", "pipe", "ignore"], detached: true })
    const clock = setTimeout(() => child.kill("SIGKILL"), HOOK_MS)
    let said = ""
    child.on("error", () => resolve(""))
    child.on("close", () => (clearTimeout(clock), resolve(context(said))))
    child.stdout.on("data", (piece) => (said += piece))
    child.stdin.on("error", () => {})
    child.stdin.end(job.input)
  })
}

function context(answer) {
  try {
    return JSON.parse(answer).hookSpecificOutput?.additionalContext ?? ""
  } catch {
    return ""
  }
}

// Nothing is left behind, however OpenCode ends.
process.on("exit", () => {
  for (const job of waiting)
    spawnSync(LAUNCHER, [job.command, HOST], { cwd: "/", input: job.input, stdio: ["pipe", "ignore", "ignore"], timeout: HOOK_MS })
})

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms).unref?.())
const atMost = (ms, promise) => Promise.race([promise, pause(ms)])

// --- small readers -------------------------------------------------------------------------------------------------

// `opencode run "two words"` puts the quotes back that the shell took away.
function said(parts) {
  const typed = parts.filter((part) => part.type === "text" && !part.synthetic && !part.ignored)
  const text = typed.map((part) => part.text).join("\n").trim()
  const quoted = /^"((?:[^"\\]|\\[\s\S])*)"$/.exec(text)
  return quoted ? quoted[1].replaceAll('\\"', '"') : text
}

// A patch may touch several files; each is an edit of its own.
function pieces(tool, input) {
  const patch = input?.patchText
  const files = typeof patch === "string" ? patch.split(/^(?=\*\*\* (?:Add|Update|Delete) File: )/m).slice(1) : []
  return files.length ? files.map((patchText) => ({ ...input, patchText })) : [input]
}

// --- the plugin ----------------------------------------------------------------------------------------------------

export const ClaudeMem = async ({ directory }) => {
  const sessions = new Map()
  let servers = []

  // What is known of a session, and what its model is to be told: at the start, with a prompt, with a tool's result.
  const know = (id) => {
    if (!sessions.has(id))
      sessions.set(id, { id, parent: "", start: "", told: new Map(), asked: new Set(), prompt: "", words: "", open: false })
    return sessions.get(id)
  }

  const root = (session) => (session.parent ? root(know(session.parent)) : session)

  const fields = (session, event, more) => {
    const owner = root(session)
    const agent = owner === session ? {} : { agent_id: session.id, agent_type: HOST }
    return { hook_event_name: event, session_id: owner.id, cwd: directory, prompt_id: owner.prompt, ...agent, ...more }
  }

  // Ask, and note where the answer belongs; nobody waits yet.
  const ask = (session, command, event, more, put) => {
    const answer = tell(command, fields(session, event, more)).then((text) => text && put(text)).catch(() => {})
    session.asked.add(answer)
    answer.finally(() => session.asked.delete(answer))
  }

  // Nothing of what was said earlier is in OpenCode's own records, so a resumed session is told anew.
  const begin = (session, source) =>
    ask(session, "context", "SessionStart", { source, prompt_id: "" }, (text) => (session.start = text))

  const used = (session, { tool, callID, input, output, error }) => {
    pieces(tool, input).forEach((piece, n) => {
      const more = { tool_name: tool, tool_input: piece, tool_use_id: n ? `${callID}.${n}` : callID, mcp_servers: servers }
      if (error === undefined) tell("save", fields(session, "PostToolUse", { ...more, tool_response: output }))
      else
        ask(session, "fail", "PostToolUseFailure", { ...more, error }, (text) => session.told.set(callID, text))
    })
  }

  const ended = (session, reason) => {
    if (!session.parent) tell("cleanup", fields(session, "SessionEnd", { reason }))
    sessions.delete(session.id)
  }

  const events = {
    "session.created": ({ info }) => {
      const session = know(info.id)
      session.parent = info.parentID ?? ""
      if (!session.parent) begin(session, "startup")
    },
    "session.deleted": ({ info }) => sessions.has(info.id) && ended(know(info.id), "deleted"),
    "session.compacted": ({ sessionID }) => {
      const session = know(sessionID)
      session.told.clear()
      if (!session.parent) begin(session, "compact")
    },
    "message.updated": ({ info }) => {
      const session = sessions.get(info.sessionID)
      if (session && info.role === "assistant" && session.message !== info.id)
        Object.assign(session, { message: info.id, words: "", summing: Boolean(info.summary) })
    },
    "message.part.updated": ({ part }) => {
      const session = sessions.get(part.sessionID)
      if (!session) return
      if (part.type === "text" && part.messageID === session.message && !session.summing) session.words = part.text
      // A tool that throws has no `tool.execute.after`.
      if (part.type === "tool" && part.state.status === "error")
        used(session, { tool: part.tool, callID: part.callID, input: part.state.input, error: part.state.error })
    },
    "session.idle": ({ sessionID }) => {
      const session = sessions.get(sessionID)
      if (!session?.open) return
      session.open = false
      const event = session.parent ? "SubagentStop" : "Stop"
      tell("summary", fields(session, event, { last_assistant_message: session.words }))
    },
  }

  const hooks = {
    config: (config) => {
      config.mcp ??= {}
      config.mcp["claude-mem"] ??= { type: "local", command: [LAUNCHER, "mcp"], enabled: true }
      servers = Object.keys(config.mcp)
    },

    event: ({ event }) => events[event.type]?.(event.properties),

    "chat.message": ({ sessionID }, { message, parts }) => {
      const unseen = !sessions.has(sessionID)
      const session = know(sessionID)
      if (unseen) begin(session, "startup")
      Object.assign(session, { open: true, words: "" })
      if (session.parent) return
      session.prompt = message.id
      const prompt = said(parts)
      if (prompt) ask(session, "new", "UserPromptSubmit", { prompt }, (text) => session.told.set(message.id, text))
    },

    "tool.execute.before": ({ tool, sessionID, callID }, { args }) => {
      const session = know(sessionID)
      const more = { tool_name: tool, tool_input: args }
      if (tool === "read") ask(session, "file", "PreToolUse", more, (text) => session.told.set(callID, text))
    },

    "tool.execute.after": ({ tool, sessionID, callID, args }, { output, content, metadata }) => {
      const exit = metadata?.exit
      const error = typeof exit === "number" && exit ? `Exit code ${exit}\n${output}` : undefined
      used(know(sessionID), { tool, callID, input: args, output: output ?? content, error })
    },

    "experimental.session.compacting": ({ sessionID }) => {
      tell("compact", fields(know(sessionID), "PreCompact", { trigger: "auto" }))
    },

    // Here, because it is not kept, not shown, and not part of the request for a title. What was said once stays at its
    // place in every later request of this process, as if it had always stood there. Copies are changed: the message
    // itself may be in use elsewhere.
    "experimental.chat.messages.transform": async (_, { messages }) => {
      const session = sessions.get(messages[0]?.info.sessionID)
      if (!session) return
      await atMost(ANSWER_MS, Promise.all(session.asked))
      const first = messages.findIndex(({ info }) => info.role === "user")
      messages.forEach(({ info, parts }, n) => {
        const texts = [n === first && session.start, session.told.get(info.id)].filter(Boolean)
        const ours = texts.map((text, k) => ({
          ...{ id: `prt_claude_mem_${k}`, sessionID: info.sessionID, messageID: info.id },
          ...{ type: "text", synthetic: true, text },
        }))
        messages[n] = { info, parts: [...parts.map((part) => withHint(session, part)), ...ours] }
      })
    },

    dispose: async () => {
      for (const session of [...sessions.values()]) ended(session, "exit")
      await atMost(FLUSH_MS, last)
    },
  }

  return Object.fromEntries(Object.entries(hooks).map(([name, hook]) => [name, quietly(hook)]))
}

// What is known about a file or an error stands at the end of the tool's result.
function withHint(session, part) {
  const hint = part.type === "tool" && session.told.get(part.callID)
  if (!hint) return part
  const { state } = part
  if (state.status === "error") return { ...part, state: { ...state, error: `${state.error}\n\n${hint}` } }
  return typeof state.output === "string" ? { ...part, state: { ...state, output: `${state.output}\n\n${hint}` } } : part
}

function quietly(hook) {
  return async (...given) => {
    try {
      await hook(...given)
    } catch {
      // a guest does not complain
    }
  }
}
