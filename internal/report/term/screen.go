package term

import (
	"bytes"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Screen filters the output of a full-screen program on a foreign machine for our terminal. It passes text,
// colours, cursor movement, clearing and scrolling. It removes all other sequences, because they could affect the
// terminal or our machine: titles, the clipboard, questions whose answers the terminal types, other character sets.
// It replaces a character that does not print by "?". Sequences are those of ECMA-48 and of xterm.
type Screen struct {
	to   io.Writer
	rest []byte // the incomplete beginning of a character or a sequence
	text bool   // inside a control string, which ends with BEL or ST and is removed
	on   []string
}

// NewScreen makes a Screen before a terminal.
func NewScreen(to io.Writer) *Screen { return &Screen{to: to} }

const (
	escape = 0x1b
	bell   = 0x07
	// longest is the longest sequence that Screen waits for. The rest of a longer one counts as text.
	longest = 64
)

var (
	// command is a sequence with numbers of at most four digits: colours, moves, clearing, inserting, scrolling.
	command = regexp.MustCompile(`^[0-9]{0,4}([;:][0-9]{0,4}){0,20}[mHfABCDEFGJKLMPSTXZIdbr@]$`)
	// mode switches something on or off.
	mode = regexp.MustCompile(`^\?([0-9]{1,4})([hl])$`)
	// modes are the modes that pass, each with the character that switches it back: keys of the cursor, line wrap,
	// the cursor, the other screen, pasting, and synchronised output.
	modes = map[string]string{"1": "l", "7": "h", "25": "h", "1049": "l", "2004": "l", "2026": "l"}
)

// Write passes on what is allowed. It reports all bytes as written.
func (s *Screen) Write(p []byte) (int, error) {
	s.rest = append(s.rest, p...)
	var out bytes.Buffer
	for len(s.rest) > 0 {
		n := s.next(&out)
		if n == 0 {
			break
		}
		s.rest = s.rest[n:]
	}
	s.rest = slices.Clone(s.rest)
	if _, err := s.to.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close resets the modes that are still on, and the colours.
func (s *Screen) Close() error {
	var out strings.Builder
	for _, m := range s.on {
		out.WriteString("\x1b[?" + m + modes[m])
	}
	s.on, s.rest, s.text = nil, nil, false
	_, err := io.WriteString(s.to, out.String()+"\x1b[m")
	return err
}

// next handles one character or sequence of the pending bytes, and returns its length. It returns 0 if the end has
// not arrived.
func (s *Screen) next(out *bytes.Buffer) int {
	first := s.rest[0]
	switch {
	case s.text:
		return s.skip()
	case first == escape:
		return s.sequence(out)
	case first < ' ':
		if strings.IndexByte("\r\n\t\b", first) >= 0 {
			out.WriteByte(first)
		}
		return 1
	case !utf8.FullRune(s.rest):
		return 0
	}
	r, n := utf8.DecodeRune(s.rest)
	if n == 1 && r == utf8.RuneError || !unicode.IsPrint(r) {
		r = '?'
	}
	out.WriteRune(r)
	return n
}

// skip leaves out a byte of a control string, or its end.
func (s *Screen) skip() int {
	switch {
	case s.rest[0] == bell:
		s.text = false
	case s.rest[0] != escape:
	case len(s.rest) < 2:
		return 0
	case s.rest[1] == '\\':
		s.text = false
		return 2
	}
	return 1
}

// sequence passes on an escape sequence, or leaves it out.
func (s *Screen) sequence(out *bytes.Buffer) int {
	if len(s.rest) < 2 {
		return 0
	}
	switch kind := s.rest[1]; kind {
	case '[':
		return s.control(out)
	case ']', 'P', 'X', '^', '_': // OSC, DCS, SOS, PM, APC
		s.text = true
	case 'M', '7', '8': // a line up; save and restore the cursor
		out.Write(s.rest[:2])
	case '(', ')', '*', '+', '-', '.', '/', '#', '%', ' ': // one more byte: character sets
		if len(s.rest) < 3 {
			return 0
		}
		return 3
	case escape:
		return 1
	}
	return 2
}

// control passes on a control sequence, or leaves it out.
func (s *Screen) control(out *bytes.Buffer) int {
	const head = 2
	end := slices.IndexFunc(s.rest[head:], func(b byte) bool { return b < ' ' || b >= '@' })
	switch {
	case end < 0 && len(s.rest) < longest:
		return 0
	case end < 0 || end+head >= longest:
		return head
	case s.rest[head+end] < ' ' || s.rest[head+end] > '~': // broken off
		return head + end
	}
	body := string(s.rest[head : head+end+1])
	m := mode.FindStringSubmatch(body)
	switch {
	case m != nil && modes[m[1]] != "":
		s.on = slices.DeleteFunc(s.on, func(is string) bool { return is == m[1] })
		if m[2] != modes[m[1]] {
			s.on = append(s.on, m[1])
		}
		out.WriteString("\x1b[" + body)
	case command.MatchString(body):
		out.WriteString("\x1b[" + body)
	}
	return head + end + 1
}
