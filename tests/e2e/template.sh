# template: the prompt of a conversation, against what transformers rendered and against templates so
# small that the expected text can be read off; and the same road in generate.
expect() { json "$TINY/expected.json" "$1"; }

json "$TINY/expected.json" "json.dumps(d['chat'])" >chat.json
json "$TINY/expected.json" "d['chat_text']" | head -c -1 >chat.txt
tri template "$TINY" -f chat.json
check "template prints the prompt of transformers, and nothing else" cmp -s out chat.txt
check "and says nothing" test ! -s err -a "$rc" -eq 0
"$TRIGRAPH" template "$TINY" <chat.json >out 2>err
check "messages come through a pipe" cmp -s out chat.txt
tri template "$TINY/chat_template.jinja" -f chat.json
check "a template alone knows the tokens of the tokenizer beside it" cmp -s out chat.txt
tri export "$TINY" -o m.tg
tri template m.tg -f chat.json
check "an artifact renders the same" cmp -s out chat.txt
cp out prompt
tri tokenize m.tg -f prompt --no-add-special
check "and its ids are those of transformers" is_same "$(cat out)" "$(expect "' '.join(map(str, d['chat_ids']))")"
tri template m.tg --list
check "--list prints the names of templates" is_same "$(cat out)" default
tri template m.tg -f chat.json --template default
check "a template is chosen by its name" cmp -s out chat.txt
check "no source was exported for any of it" test -z "$(ls cache)"
json "$TINY/expected.json" "json.dumps({'messages': d['chat'], 'model': 'x', 'temperature': 1, 'tool_choice': 'auto'})" >body.json
tri template m.tg -f body.json
check "the body of a request is a conversation too" cmp -s out chat.txt
json "$TINY/expected.json" "json.dumps({'messages': d['chat'], 'add_generation_prompt': False})" >closed.json
tri template m.tg -f closed.json
check "add_generation_prompt false ends behind the last message" is_same "$(cat out)" "$(sed '$d' chat.txt)"
cp out closed.txt
tri template m.tg -f chat.json --no-generation-prompt
check "and so does --no-generation-prompt" cmp -s out closed.txt

cat >all.jinja <<'END'
{{ messages[0].content }}|{{ tools | map(attribute='name') | join(',') if tools else 'no tools' }}|{{ documents[0].text if documents else 'no documents' }}|{{ mood | default('calm') }}|{{ 'open' if add_generation_prompt else 'closed' }}
END
echo '[{"role": "user", "content": "hi"}]' >hi.json
echo '[{"name": "a"}, {"name": "b"}]' >tools.json
echo '[{"text": "T"}]' >documents.json
rendered() { # NAME TEXT ARGUMENTS...
    name=$1 text=$2
    shift 2
    tri template all.jinja "$@"
    check "$name" is_same "$(cat out)" "$text"
}
rendered "what is not given is not there" "hi|no tools|no documents|calm|open" -f hi.json
rendered "--tools are the template's" "hi|a,b|no documents|calm|open" -f hi.json --tools tools.json
rendered "--documents are the template's" "hi|no tools|T|calm|open" -f hi.json --documents documents.json
rendered "--kwargs are variables" "hi|no tools|no documents|glad|open" -f hi.json --kwargs '{"mood": "glad"}'
echo '{"messages": [{"content": "hi"}], "tools": [{"name": "c"}], "documents": [{"text": "U"}], "chat_template_kwargs": {"mood": "sad", "other": 1}}' >whole.json
rendered "a request brings all of them" "hi|c|U|sad|open" -f whole.json
rendered "options win over a request" "hi|a,b|T|glad|open" -f whole.json --tools tools.json --documents documents.json --kwargs '{"mood": "glad"}'
rendered "other variables of the request stay" "hi|c|U|sad|open" -f whole.json --kwargs '{"another": 2}'
python3 -c 'import json; print(json.dumps([{"content": "\x1b[31mred\x07 é \u202e"}]))' >control.json
tri template all.jinja -f control.json
check "bytes go into a pipe as they are" is_same "$(head -c 10 out | od -An -tx1 | tr -d ' \n')" 1b5b33316d7265640720

refused() { # NAME PATTERN JSON ARGUMENTS...
    name=$1 pattern=$2
    printf '%s' "$3" >bad.json
    shift 3
    refuses "$name" 1 "$pattern" template all.jinja -f bad.json "$@"
}
refuses "messages that are not there" 1 "no/messages" template all.jinja -f no/messages
refuses "tools that are not there" 1 "no/tools" template all.jinja -f hi.json --tools no/tools
refuses "documents that are no JSON" 1 "all\.jinja: line 1" template all.jinja -f hi.json --documents all.jinja
refuses "a model that is not there" 1 "nothing/here" template nothing/here -f hi.json
refuses "a part of the conversation as a variable" 1 "'add_generation_prompt' is part of the conversation" template all.jinja -f hi.json --kwargs '{"add_generation_prompt": false}'
refuses "a template of another name" 1 "all\.jinja: .*'rag'; there are: default" template all.jinja -f hi.json --template rag
refused "no JSON" "bad\.json: line 1" 'hello'
refused "nothing at all" "bad\.json" ''
refused "a text for messages" "messages must be a list" '"hi"'
refused "a number for messages" "messages must be a list" '{"messages": 3}'
refused "no messages" "at least one message" '[]'
refused "a request without messages" "bad\.json: has no key 'messages'" '{"tools": []}'
refused "a key that no request has" "'mesages'.*messages" '{"mesages": []}'
refused "a choice that no template knows" "tool_choice.*'none'" '{"messages": [], "tool_choice": "none"}'
refused "a number that would become another" "bad\.json.*too big integer" '[{"content": 18446744073709551616}]'
refused "a variable that would" "kwargs.*too big integer" '[{"content": "a"}]' --kwargs '{"mood": 123456789012345678901234567890}'
refused "a prompt that is no yes or no" "add_generation_prompt" '{"messages": [], "add_generation_prompt": 1}'
refused "tools that are no list" "tools must be a list" '{"messages": [{"content": "a"}], "tools": {}}'
refused "variables that are no object" "template variables must be a JSON object" '[{"content": "a"}]' --kwargs '[]'
refused "variables that are no JSON" "kwargs.*line 1" '[{"content": "a"}]' --kwargs 'x=1'
printf '\xff\xfe' >latin.json
refuses "bytes that are no text" 1 "latin\.json" template all.jinja -f latin.json
head -c 70000000 /dev/zero | tr '\0' ' ' >huge.json
refuses "more than 64 MiB" 1 "huge\.json.*67108864" template all.jinja -f huge.json
rm huge.json
echo "{% if x %}" >broken.jinja
refuses "a template that does not parse" 1 "broken\.jinja.*line 1" template broken.jinja -f hi.json
echo "{{ raise_exception('roles must alternate') }}" >minds.jinja
refuses "a template that minds" 1 "roles must alternate" template minds.jinja -f hi.json
mkdir plain
cp "$TINY/tokenizer.json" plain
refuses "a model without a template" 1 "plain: the model has no chat template" template plain -f hi.json
tri template plain --list
check "and its list is empty" test "$rc" -eq 0 -a ! -s out
refuses "two inputs" 2 "cannot be used together" template all.jinja -f hi.json --list

mkdir -p several/additional_chat_templates
echo 'default {{ messages[0].content }}' >several/chat_template.jinja
echo 'tools {{ messages[0].content }}' >several/additional_chat_templates/tool_use.jinja
echo 'sources {{ messages[0].content }}' >several/additional_chat_templates/rag.jinja
tri template several --list
check "--list names all" is_same "$(sort out | tr '\n' ' ')" "default rag tool_use "
check "the default is the first" is_same "$(head -n 1 out)" default
tri template several -f hi.json
check "without tools the default renders" is_same "$(cat out)" "default hi"
tri template several -f hi.json --tools tools.json
check "with tools tool_use does" is_same "$(cat out)" "tools hi"
tri template several -f hi.json --tools tools.json --template rag
check "a name wins over both" is_same "$(cat out)" "sources hi"
refuses "a name that is none of them" 1 "'rog'.*default.*(rag.*tool_use|tool_use.*rag)" template several -f hi.json --template rog

mkdir config
python3 -c 'import json; json.dump({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "unk_token": None, "chat_template":
 "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ unk_token }}"}, open("config/tokenizer_config.json", "w"))'
for source in config config/tokenizer_config.json; do
    tri template $source -f hi.json
    check "$source alone spells its tokens" is_same "$(cat out)" "<s>hi</s>"
done

# generate sends the text that template shows.
cp -r "$TINY" moody && chmod -R u+w moody && cp all.jinja moody/chat_template.jinja
tri export moody -o moody.tg
tri template moody.tg -f hi.json --kwargs '{"mood": "glad"}'
cp out prompt
tri tokenize moody.tg -f prompt --no-add-special
cp out ids
tri generate moody.tg -p hi -n 1 --temp 0 --kwargs '{"mood": "glad"}' --json
check "generate --kwargs renders the same prompt" is_same "$(json out "' '.join(map(str, d['prompt_tokens']))")" "$(cat ids)"
refuses "--kwargs without a template" 1 "--kwargs needs a chat template" generate moody.tg --raw -p hi --kwargs '{}'
refuses "generate with a template of another name" 1 "moody\.tg: .*'rag'; there are: default" generate moody.tg -p hi --template rag
refuses "generate with variables that are none" 1 "template variables" generate moody.tg -p hi --kwargs '3'

# A source without a template.
mkdir bare && cp "$TINY/tokenizer.json" bare/
tri template bare --list
check "--list without a template prints no name and says so" test "$rc" -eq 0 -a ! -s out -a -n "$(grep 'no chat template' err)"

# A message that spells the end of a turn: text that is the same, and no token of it where asked.
cat >turns.jinja <<'END'
{% for m in messages %}{{ bos_token }}{{ m.content }}{% endfor %}
END
mkdir turns && cp "$TINY"/token* turns/ && cp turns.jinja turns/chat_template.jinja
echo '[{"role": "user", "content": "a <|eos|> b"}]' >spelled.json
tri template turns -f spelled.json
cp out ordinary
tri template turns -f spelled.json --safe-messages on
check "--safe-messages does not change the text" cmp -s out ordinary
printf '{{ messages[0].content|length }}{{ messages[0].content }}' >turns/chat_template.jinja
tri template turns -f spelled.json
check "a template that counts letters renders" test "$rc" -eq 0
refuses "and not with safe messages, when a message spells a control token" 1 "cannot be told apart" template turns -f spelled.json --safe-messages on
