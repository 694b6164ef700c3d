// The openai package of npm, as it comes:  node openai_node.mjs http://127.0.0.1:9000 [KEY]
import OpenAI from 'openai'

const [url, key] = [process.argv[2], process.argv[3] ?? 'no-key']
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key })
const prompt = 'one two three'
const asked = { model: 'auto', messages: [{ role: 'user', content: prompt }], max_tokens: 60 }

function holds(value, what) {
  if (!value) throw new Error(what)
}

const checks = {
  async models_are_listed() {
    holds((await client.models.list()).data[0].id === 'auto', 'auto is first')
  },
  async a_chat_is_answered() {
    const found = await client.chat.completions.create(asked)
    holds(found.choices[0].message.content.includes(prompt), 'the echo')
    holds(found.usage.total_tokens > 3, 'usage')
  },
  async a_stream_says_the_same_and_ends_with_its_usage() {
    let text = '', usage = null
    for await (const chunk of await client.chat.completions.create({ ...asked, stream: true, stream_options: { include_usage: true } })) {
      text += chunk.choices[0]?.delta?.content ?? ''
      usage = chunk.usage ?? usage
    }
    holds(text.includes(prompt) && usage.completion_tokens > 2, text)
  },
  async a_stream_can_be_left() {
    const stream = await client.chat.completions.create({ ...asked, max_tokens: 2000, seed: 6005, stream: true })
    for await (const _ of stream) break
  },
  async errors_are_of_their_classes() {
    for (const [kind, fields] of [[OpenAI.NotFoundError, { model: 'gpt-99' }], [OpenAI.BadRequestError, { top_p: 7 }]]) {
      const error = await client.chat.completions.create({ ...asked, ...fields }).then(() => null, (error) => error)
      holds(error instanceof kind && error.param !== undefined, String(error))
    }
  },
  async completions_and_responses() {
    const text = (await client.completions.create({ model: 'auto', prompt, max_tokens: 60 })).choices[0].text
    holds(text === prompt, text)
    holds((await client.responses.create({ model: 'auto', input: prompt })).output_text.includes(prompt), 'a response')
  },
}

const found = {}
for (const [name, check] of Object.entries(checks)) {
  found[name] = await check().then(() => 'ok', (error) => String(error.stack).slice(0, 800))
}
console.log(JSON.stringify(found))
