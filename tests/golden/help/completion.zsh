#compdef trigraph
# made by: trigraph --completion zsh
if (( CURRENT == 2 )); then
    compadd -- export generate chat tokenize detokenize template inspect eval bench
    return
fi
case $words[2] in
export)
    _arguments '2:model:_files' \
        '--output=[the folder that becomes the artifact]:value:_files' \
        '--force[replace DIR if it exists; readers of the old one are not disturbed]' \
        '--dry-run[write nothing, print the memory plan]' \
        '--dump-ir=[write nothing, print the graphs as they are after this pass]:value:_files' \
        '--batch=[sequences that run together]:value:_files' \
        '--max-length=[context length\: tokens of a prompt and its completion]:value:_files' \
        '--context-buckets=[token counts of the prefill graphs, ascending, separated by commas]:value:_files' \
        '--speculation=[drafted tokens that one step verifies, which bench --verify measures]:value:_files' \
        '--weights=[how the weights of a float checkpoint are stored; auto keeps its types]:value:_files' \
        '--calibrate=[a text of 64 to 4096 tokens; --weights q4_0, q4_1 and q5_1 keep best what it uses]:value:_files' \
        '--activations=[the type of activations in products with quantized weights; int8 keeps the few outlier groups in 16 bits]:value:_files' \
        '--kv=[the type of the KV cache]:value:_files' \
        '--config=[JSON with the same names; options given here win]:value:_files' \
        '--help[print this and exit]' \
        '--version[print the version and exit]'
    ;;
generate)
    _arguments '2:model:_files' \
        '--prompt=[the text]:value:_files' \
        '--file=[the text, from a file; - is standard input]:value:_files' \
        '--ids=[token ids, decimal, separated by spaces; - is standard input]:value:_files' \
        '--system=[the system message before the conversation]:value:_files' \
        '--raw[continue the text as it is, without the chat template]' \
        '--kwargs=[more variables for the chat template, such as {"enable_thinking"\: false}]:value:_files' \
        '--template=[the chat template of this name; without it, tool_use where there are tools and it is there, else default]:value:_files' \
        '--safe-messages=[text of messages stays plain text where it spells control tokens; refused where the template forbids it]:value:_files' \
        '--predict=[generate at most this many tokens]:value:_files' \
        '--stop=[end before this text; up to 16 times, and the first to be complete ends it]:value:_files' \
        '--ignore-eos[go on after the model'\''s stop tokens]' \
        '--show-special[print special tokens too]' \
        '--temp=[0 takes the likeliest token each time]:value:_files' \
        '--top-k=[only the N likeliest tokens; 0 for all]:value:_files' \
        '--top-p=[only the likeliest tokens whose probabilities sum to X; 1 for all]:value:_files' \
        '--min-p=[only tokens at least X times as likely as the best]:value:_files' \
        '--repeat-penalty=[penalty for tokens that occurred in prompt or completion; 1 for none]:value:_files' \
        '--presence-penalty=[subtracted from the logits of tokens that the completion has]:value:_files' \
        '--frequency-penalty=[subtracted once for each time the completion has the token]:value:_files' \
        '--seed=[the same seed draws the same tokens, on any machine]:value:_files' \
        '--threads=[worker threads; changes the speed, never the result]:value:_files' \
        '--json[print one JSON object on standard output]' \
        '--stats[print times and speeds on standard error]' \
        '--help[print this and exit]' \
        '--version[print the version and exit]'
    ;;
chat)
    _arguments '2:model:_files' \
        '--system=[the system message before the conversation]:value:_files' \
        '--kwargs=[more variables for the chat template, such as {"enable_thinking"\: false}]:value:_files' \
        '--template=[the chat template of this name; without it, tool_use where there are tools and it is there, else default]:value:_files' \
        '--safe-messages=[text of messages stays plain text where it spells control tokens; refused where the template forbids it]:value:_files' \
        '--predict=[generate at most this many tokens]:value:_files' \
        '--stop=[end before this text; up to 16 times, and the first to be complete ends it]:value:_files' \
        '--temp=[0 takes the likeliest token each time]:value:_files' \
        '--top-k=[only the N likeliest tokens; 0 for all]:value:_files' \
        '--top-p=[only the likeliest tokens whose probabilities sum to X; 1 for all]:value:_files' \
        '--min-p=[only tokens at least X times as likely as the best]:value:_files' \
        '--repeat-penalty=[penalty for tokens that occurred in prompt or completion; 1 for none]:value:_files' \
        '--presence-penalty=[subtracted from the logits of tokens that the completion has]:value:_files' \
        '--frequency-penalty=[subtracted once for each time the completion has the token]:value:_files' \
        '--seed=[the same seed draws the same tokens, on any machine]:value:_files' \
        '--threads=[worker threads; changes the speed, never the result]:value:_files' \
        '--stats[print times and speeds on standard error]' \
        '--help[print this and exit]' \
        '--version[print the version and exit]'
    ;;
tokenize)
    _arguments '2:model:_files' \
        '--prompt=[the text]:value:_files' \
        '--file=[the text, from a file; - is standard input]:value:_files' \
        '--lines[each line, without its newline, is a text; threads share the lines]' \
        '--no-add-special[leave out what the tokenizer adds to a text]' \
        '--no-parse-special[special tokens spelled in the text are plain text]' \
        '--no-special[neither add, read nor print special tokens]' \
        '--threads=[worker threads; changes the speed, never the result]:value:_files' \
        '--show[one line per token\: id, byte range of a text given, flags, text]' \
        '--json[print one JSON object on standard output]' \
        '--help[print this and exit]' \
        '--version[print the version and exit]'
    ;;
detokenize)
    _arguments '2:model:_files' \
        '--prompt=[the text]:value:_files' \
        '--file=[the text, from a file; - is standard input]:value:_files' \
        '--ids=[token ids, decimal, separated by spaces; - is standard input]:value:_files' \
        '--no-special[neither add, read nor print special tokens]' \
        '--show[one line per token\: id, byte range of a text given, flags, text]' \
        '--json[print one JSON object on standard output]' \
        '--help[print this and exit]' \
        '--version[print the version and exit]'
    ;;
template)
    _arguments '2:model:_files' \
        '--file=[a list of messages or a chat request, JSON; - is standard input]:value:_files' \
        '--list[print the names of the model'\''s templates instead]' \
        '--tools=[the tools that the model may call, a JSON list]:value:_files' \
        '--documents=[documents to answer from, a JSON list]:value:_files' \
        '--kwargs=[more variables for the chat template, such as {"enable_thinking"\: false}]:value:_files' \
        '--template=[the chat template of this name; without it, tool_use where there are tools and it is there, else default]:value:_files' \
        '--safe-messages=[text of messages stays plain text where it spells control tokens; refused where the template forbids it]:value:_files' \
        '--no-generation-prompt[end after the last message; do not begin the assistant'\''s turn]' \
        '--help[print this and exit]' \
        '--version[print the version and exit]'
    ;;
inspect)
    _arguments '2:model:_files' \
        '--batch=[sequences that run together]:value:_files' \
        '--max-length=[context length\: tokens of a prompt and its completion]:value:_files' \
        '--weights=[how the weights of a float checkpoint are stored; auto keeps its types]:value:_files' \
        '--kv=[the type of the KV cache]:value:_files' \
        '--verify[verify every checksum of an artifact, weights included]' \
        '--json[print one JSON object on standard output]' \
        '--help[print this and exit]' \
        '--version[print the version and exit]'
    ;;
eval)
    _arguments '2:model:_files' \
        '--prompt=[the text]:value:_files' \
        '--file=[the text, from a file; - is standard input]:value:_files' \
        '--ids=[token ids, decimal, separated by spaces; - is standard input]:value:_files' \
        '--logits=[write float32 logits [tokens, vocabulary size]; logits row i follows ids 0 to i]:value:_files' \
        '--chunk=[tokens per step, at most what the largest bucket and 64 MB of logits hold; changes the speed, never the result]:value:_files' \
        '--threads=[worker threads; changes the speed, never the result]:value:_files' \
        '--json[print one JSON object on standard output]' \
        '--help[print this and exit]' \
        '--version[print the version and exit]'
    ;;
bench)
    _arguments '2:model:_files' \
        '--n-prompt=[prompt length in tokens]:value:_files' \
        '--n-gen=[completion length in tokens]:value:_files' \
        '--repetitions=[measured runs, after one to warm up]:value:_files' \
        '--depth=[tokens in the KV cache of each sequence before its prompt]:value:_files' \
        '--batch=[sequences that run together; speeds are of all of them]:value:_files' \
        '--verify[compare steps that verify 2 to 8 tokens per sequence with a decode step]' \
        '--roofline[compare the speeds with the peak rates of this machine]' \
        '--profile[one more run that times each operation]' \
        '--threads=[worker threads; changes the speed, never the result]:value:_files' \
        '--json[print one JSON object on standard output]' \
        '--help[print this and exit]' \
        '--version[print the version and exit]'
    ;;
esac
