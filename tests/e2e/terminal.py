"""What can only be seen on a terminal: ctrl-C in a chat, control bytes, the progress bar.

usage: terminal.py PROGRAM CHECKOUT    prints "ok" and "not ok" lines
"""
import os
import pty
import select
import signal
import subprocess
import sys
import time

program, root = sys.argv[1:]
PROMPT = b"\x1b[?2004h> "  # brackets for pasted text are on, and a line is waited for
model = os.path.join(root, "tests/tiny/llama-mqa")


class Terminal:
    """A program on a terminal of its own; everything it says is kept in `said`."""

    def __init__(self, *arguments):
        self.said = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(program, [program, *arguments])

    def wait_for(self, text, seconds=30):
        end = time.monotonic() + seconds
        while text not in self.said and time.monotonic() < end:
            if not select.select([self.fd], [], [], 0.1)[0]:
                continue
            try:
                block = os.read(self.fd, 65536)
            except OSError:
                break
            if not block:
                break
            self.said += block
        found = text in self.said
        return found

    def type(self, text):
        self.said = b""
        os.write(self.fd, text)

    def end(self, seconds=20):
        self.wait_for(b"\0never\0", seconds=0.5)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            self.wait_for(b"\0never\0", seconds=0.2)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return "did not end"


def check(name, is_true, detail=b""):
    print(f"{'ok' if is_true else 'not ok'}  {name}")
    if not is_true:
        print("   ", repr(detail))


chat = Terminal("chat", model, "--temp", "0", "-n", "200")
check("chat greets with a prompt", chat.wait_for(PROMPT), chat.said)
chat.type(b"/help\n")
check("/help lists the commands", chat.wait_for(b"ctrl-C stops a completion\r\n" + PROMPT), chat.said)
chat.type(b"\x03")
check("ctrl-C at the prompt does not end the program", chat.wait_for(b"/exit leaves\r\n" + PROMPT), chat.said)
chat.type(b"hello\n")
check("chat answers and asks again", chat.wait_for(PROMPT, 60), chat.said)
check("no control byte of the model reaches the terminal",
      not any(c < 32 and c not in b"\r\n\t\x1b" for c in chat.said), chat.said)
chat.type(b"/ctx\n")
check("/ctx counts the tokens", chat.wait_for(b"tokens are used"), chat.said)
chat.wait_for(PROMPT)
chat.type(b"/nonsense\n")
check("an unknown slash command is named", chat.wait_for(b"there is no /nonsense"), chat.said)
chat.wait_for(PROMPT)
chat.type(b"/clr\x1b[Dea\r")
check("the arrow keys move in the line", chat.wait_for(b"conversation is cleared"), chat.said)
chat.wait_for(PROMPT)
chat.type(b"\x1b[A\r")
check("up brings the line before back", chat.wait_for(b"conversation is cleared"), chat.said)
chat.wait_for(PROMPT)
chat.type(b"rubbish\x15/ct\xc3\xa9\x7fx\r")
check("ctrl-U and backspace delete, the latter whole characters",
      chat.wait_for(b"tokens are used"), chat.said)
chat.wait_for(PROMPT)
chat.type(b"\x1b[200~/regen\nand more\x1b[201~")
check("a pasted line break does not send", not chat.wait_for(b"there is no", 1)
      and b"/regen\r\nand more" in chat.said, chat.said)
chat.type(b"\r")
check("and is part of the message", chat.wait_for(b"there is no /regen\r\nand"), chat.said)
chat.wait_for(PROMPT)
chat.type(b"\x1b[200~/a\x07\x01b\x1b[201~\r")
check("control bytes of a paste are dropped", chat.wait_for(b"there is no /ab;"), chat.said)
chat.wait_for(PROMPT)
chat.type(b"/ct\x1b[A\x1b[Bx\r")
check("down brings the unfinished line back", chat.wait_for(b"tokens are used"), chat.said)
chat.wait_for(PROMPT)
chat.type(b"\xff\xfe/ctx\r")
check("bytes that are not UTF-8 are dropped", chat.wait_for(b"tokens are used"), chat.said)
chat.wait_for(PROMPT)
chat.type(b"\x15/exit\n")
check("/exit ends with 0", chat.end() == 0)

# A tiny model's answer is over before a key can be pressed.
real = os.path.join(os.environ["TG_MODELS"], "smollm2-135m-instruct.gguf")
if os.path.exists(real):
    chat = Terminal("chat", real, "--temp", "0")
    chat.wait_for(PROMPT, 120)
    chat.type(b"Tell me a long story about the sea.\n")
    chat.wait_for(b"\x1b[?2004l")
    chat.said = b""
    started = chat.wait_for(b" ", 60)
    os.write(chat.fd, b"\x03")
    check("ctrl-C stops a completion", started and chat.wait_for(b"stopped\r\n" + PROMPT, 60), chat.said)
    chat.type(b"\x04")
    check("ctrl-D ends with 0", chat.end() == 0)
else:
    print("skip  ctrl-C during an answer (tools/models/fetch-models smollm2 brings the model)")

chat = Terminal("chat", model)
chat.wait_for(PROMPT)
os.kill(chat.pid, signal.SIGTERM)
check("SIGTERM ends a chat with 143", chat.end() == 143)

export = Terminal("export", model, "-o", "bar.tg")
export.end()
check("an export draws a bar on a terminal", b"100%" in export.said, export.said)
quiet = subprocess.run([program, "export", model, "-o", "nobar.tg"], capture_output=True)
check("and none elsewhere", b"%" not in quiet.stderr, quiet.stderr)
