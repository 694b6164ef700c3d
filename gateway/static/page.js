// The chat page: asks /v1/chat/completions as any client would, and reads /metrics once a second.
// All text from outside is set as text, never as markup.

const element = (id) => document.getElementById(id)
const turns = []
let running = null

function shown(text, parent) {
  // The word filter masks with stars: they stand out.
  parent.replaceChildren()
  for (const part of text.split(/(\*{2,})/)) {
    if (/^\*{2,}$/.test(part)) {
      parent.appendChild(document.createElement('mark')).textContent = part
    } else if (part) {
      parent.append(part)
    }
  }
}

function addTurn(role, text) {
  const item = document.createElement('li')
  item.className = role
  item.appendChild(document.createElement('div')).className = 'text'
  item.appendChild(document.createElement('div')).className = 'meta'
  shown(text, item.firstChild)
  element('turns').append(item)
  item.scrollIntoView({ block: 'end' })
  return item
}

async function* events(response) {
  let pending = ''
  for await (const part of readable(response.body)) {
    pending += part
    const blocks = pending.split('\n\n')
    pending = blocks.pop()
    for (const block of blocks) {
      if (block.startsWith('data: ') && block !== 'data: [DONE]') yield JSON.parse(block.slice(6))
    }
  }
}

async function* readable(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader()
  for (let read; !(read = await reader.read()).done;) yield read.value
}

function asked() {
  const body = { model: element('model').value, messages: turns, stream: true, stream_options: { include_usage: true } }
  const limit = parseInt(element('max-tokens').value)
  return limit > 0 ? { ...body, max_tokens: limit } : body
}

function described(route, usage, finish, milliseconds) {
  const parts = []
  if (route) {
    parts.push(`${route.model} because of “${route.reason}”`)
    if (route.verdict && route.verdict !== 'allow') parts.push(`prompt: ${route.verdict} (${route.verdict_reason})`)
  }
  if (usage) parts.push(`${usage.prompt_tokens} + ${usage.completion_tokens} tokens`)
  if (route) parts.push(`cost ${route.cost.toPrecision(3)}`)
  parts.push(`${(milliseconds / 1000).toFixed(1)} s`)
  if (finish && finish !== 'stop') parts.push(`ended by ${finish}`)
  return parts.join(' · ')
}

async function send(text) {
  turns.push({ role: 'user', content: text })
  addTurn('user', text)
  const item = addTurn('assistant running', '')
  const began = performance.now()
  let answer = '', route = null, usage = null, finish = null, isRefused = false
  running = new AbortController()
  try {
    const response = await fetch('/v1/chat/completions', {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-router-details': '1' },
      body: JSON.stringify(asked()),
      signal: running.signal,
    })
    if (!response.ok) throw new Error((await response.json()).error.message)
    for await (const chunk of events(response)) {
      if (chunk.error) throw new Error(chunk.error.message)
      const choice = chunk.choices[0]
      answer += choice?.delta.content ?? ''
      isRefused ||= Boolean(choice?.delta.refusal)
      finish = choice?.finish_reason ?? finish
      route = chunk.router ?? route
      usage = chunk.usage ?? usage
      shown(answer, item.firstChild)
      item.scrollIntoView({ block: 'end' })
    }
    // A refused prompt is no part of the conversation either: it would have the next one refused too.
    if (isRefused) turns.pop()
    else turns.push({ role: 'assistant', content: answer })
    item.lastChild.textContent = described(route, usage, finish, performance.now() - began)
  } catch (error) {
    turns.pop()  // What was not answered is not part of the conversation.
    item.classList.add('failed')
    shown(answer + (answer ? '\n' : '') + (error.name === 'AbortError' ? '(stopped)' : error.message), item.firstChild)
  } finally {
    item.classList.remove('running')
    running = null
    element('send').textContent = 'Send'
  }
}

element('ask').addEventListener('submit', (event) => {
  event.preventDefault()
  if (running) return running.abort()
  const text = element('prompt').value.trim()
  if (!text) return
  element('prompt').value = ''
  element('send').textContent = 'Stop'
  send(text)
})
element('prompt').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
    event.preventDefault()
    element('ask').requestSubmit()
  }
})
element('new').addEventListener('click', () => {
  running?.abort()
  turns.length = 0
  element('turns').replaceChildren()
})

function samples(page) {
  const found = []
  for (const line of page.split('\n')) {
    const match = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line)
    if (match) found.push({ name: match[1], labels: labelsOf(match[2] ?? ''), value: Number(match[3]) })
  }
  return found
}

function labelsOf(text) {
  return Object.fromEntries([...text.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map((found) => [found[1], found[2]]))
}

function median(buckets) {
  const sorted = buckets.map(({ labels, value }) => [labels.le === '+Inf' ? Infinity : Number(labels.le), value]).sort((a, b) => a[0] - b[0])
  const total = sorted.at(-1)?.[1] ?? 0
  if (!total) return '–'
  const bound = sorted.find(([, count]) => count >= total / 2)[0]
  return bound === Infinity ? 'over 30 s' : `≤ ${bound * 1000} ms`
}

function showLive(all) {
  const named = (name, labels = {}) => all.filter((sample) => sample.name === name && Object.entries(labels).every(([key, value]) => sample.labels[key] === value))
  const sum = (name, labels) => named(name, labels).reduce((total, sample) => total + sample.value, 0)
  element('streams').textContent = sum('llm_gateway_streams')
  element('parked').textContent = sum('llm_gateway_parked')
  element('first-token').textContent = median(named('llm_gateway_time_to_first_token_seconds_bucket'))
  element('answered').textContent = sum('llm_router_requests_total')
  element('refused').textContent = sum('llm_router_requests_total', { finish: 'refused' })
  element('masked').textContent = sum('llm_router_filter_hits_total')
  element('cost').textContent = sum('llm_gateway_cost_total').toPrecision(3)
  const routes = {}
  for (const { labels, value } of named('llm_router_requests_total')) {
    const key = `${labels.model}\n${labels.reason}`
    routes[key] = (routes[key] ?? 0) + value
  }
  const rows = Object.entries(routes).sort((a, b) => b[1] - a[1]).slice(0, 12).map(([key, count]) => {
    const row = document.createElement('tr')
    for (const text of [...key.split('\n'), count]) row.appendChild(document.createElement('td')).textContent = text
    return row
  })
  element('routes').replaceChildren(...rows)
}

async function look() {
  try {
    if (!document.hidden) {
      const response = await fetch('/metrics')
      if (!response.ok) throw new Error(`/metrics says ${response.status}`)
      showLive(samples(await response.text()))
      element('trouble').textContent = ''
    }
  } catch (error) {
    element('trouble').textContent = `The gateway doesn't answer: ${error.message}`
  }
  setTimeout(look, 1000)
}

async function listModels() {
  const response = await fetch('/v1/models')
  for (const { id } of (await response.json()).data.filter((model) => !model.id.includes('embedding'))) {
    element('model').append(new Option(id, id))
  }
}

listModels()
look()
