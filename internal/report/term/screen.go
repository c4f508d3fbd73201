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

// Screen filters the output of a full-screen program on another machine, which is not trusted. It passes text, colours,
// cursor movement, clearing and scrolling. It removes all other control sequences (ECMA-48 and xterm), such as those
// for titles, the clipboard, terminal reports and character sets. It replaces unprintable characters by "?".
type Screen struct {
	to       io.Writer
	pending  []byte // the incomplete beginning of a character or a sequence
	inString bool   // inside a control string, which ends with BEL or ST and is removed
	modesOn  []string
}

// NewScreen makes a Screen that draws on a terminal.
func NewScreen(to io.Writer) *Screen { return &Screen{to: to} }

const (
	escape = 0x1b
	bell   = 0x07
	// maxSequence is the longest sequence for whose end Screen waits. Screen passes the rest of a longer one as text.
	maxSequence = 64
)

var (
	// cursorSequence matches the allowed sequences for colours, cursor movement, clearing, inserting and scrolling.
	// Their numbers have at most four digits.
	cursorSequence = regexp.MustCompile(`^[0-9]{0,4}([;:][0-9]{0,4}){0,20}[mHfABCDEFGJKLMPSTXZIdbr@]$`)
	// modeSequence matches a sequence that sets or resets a mode of the terminal.
	modeSequence = regexp.MustCompile(`^\?([0-9]{1,4})([hl])$`)
	// modes are the allowed modes, each with the final character that restores its default: cursor keys, line wrap, the
	// cursor, the alternate screen, bracketed paste and synchronised output.
	modes = map[string]string{"1": "l", "7": "h", "25": "h", "1049": "l", "2004": "l", "2026": "l"}
)

// Write writes the allowed text and sequences to the terminal. It reports all bytes as written.
func (s *Screen) Write(p []byte) (int, error) {
	s.pending = append(s.pending, p...)
	var out bytes.Buffer
	for len(s.pending) > 0 {
		n := s.next(&out)
		if n == 0 {
			break
		}
		s.pending = s.pending[n:]
	}
	s.pending = slices.Clone(s.pending)
	if _, err := s.to.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close restores the modes that the program has changed, and resets the colours.
func (s *Screen) Close() error {
	var out strings.Builder
	for _, m := range s.modesOn {
		out.WriteString("\x1b[?" + m + modes[m])
	}
	s.modesOn, s.pending, s.inString = nil, nil, false
	_, err := io.WriteString(s.to, out.String()+"\x1b[m")
	return err
}

// next handles the first character or sequence of the pending bytes, and returns its length. It returns 0 if the
// character or sequence is incomplete.
func (s *Screen) next(out *bytes.Buffer) int {
	first := s.pending[0]
	switch {
	case s.inString:
		return s.skipString()
	case first == escape:
		return s.sequence(out)
	case first < ' ':
		if strings.IndexByte("\r\n\t\b", first) >= 0 {
			out.WriteByte(first)
		}
		return 1
	case !utf8.FullRune(s.pending):
		return 0
	}
	r, n := utf8.DecodeRune(s.pending)
	if n == 1 && r == utf8.RuneError || !unicode.IsPrint(r) {
		r = '?'
	}
	out.WriteRune(r)
	return n
}

// skipString removes the next byte of a control string, or the end of the string.
func (s *Screen) skipString() int {
	switch {
	case s.pending[0] == bell:
		s.inString = false
	case s.pending[0] != escape:
	case len(s.pending) < 2:
		return 0
	case s.pending[1] == '\\':
		s.inString = false
		return 2
	}
	return 1
}

// sequence writes an escape sequence to out if it is allowed, and returns its length.
func (s *Screen) sequence(out *bytes.Buffer) int {
	if len(s.pending) < 2 {
		return 0
	}
	switch kind := s.pending[1]; kind {
	case '[':
		return s.control(out)
	case ']', 'P', 'X', '^', '_': // OSC, DCS, SOS, PM, APC
		s.inString = true
	case 'M', '7', '8': // a line up; save and restore the cursor
		out.Write(s.pending[:2])
	case '(', ')', '*', '+', '-', '.', '/', '#', '%', ' ': // one more byte: character sets
		if len(s.pending) < 3 {
			return 0
		}
		return 3
	case escape:
		return 1
	}
	return 2
}

// control writes a control sequence to out if it is allowed, and returns its length.
func (s *Screen) control(out *bytes.Buffer) int {
	const head = 2
	end := slices.IndexFunc(s.pending[head:], func(b byte) bool { return b < ' ' || b >= '@' })
	switch {
	case end < 0 && len(s.pending) < maxSequence:
		return 0
	case end < 0 || end+head >= maxSequence:
		return head
	case s.pending[head+end] < ' ' || s.pending[head+end] > '~': // the sequence is incomplete and other bytes follow
		return head + end
	}
	body := string(s.pending[head : head+end+1])
	m := modeSequence.FindStringSubmatch(body)
	switch {
	case m != nil && modes[m[1]] != "":
		s.modesOn = slices.DeleteFunc(s.modesOn, func(is string) bool { return is == m[1] })
		if m[2] != modes[m[1]] {
			s.modesOn = append(s.modesOn, m[1])
		}
		out.WriteString("\x1b[" + body)
	case cursorSequence.MatchString(body):
		out.WriteString("\x1b[" + body)
	}
	return head + end + 1
}
