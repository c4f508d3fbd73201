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

// Screen filters the output of a full-screen program on another machine. It does not trust the other machine. It passes
// text, colours, cursor movement, clearing and scrolling. It removes all other control sequences (ECMA-48 and xterm),
// such as those for titles, the clipboard, terminal reports and character sets. It replaces unprintable characters by
// "?".
type Screen struct {
	to           io.Writer // the terminal
	pending      []byte    // the incomplete beginning of a character or a sequence
	inString     bool      // the next bytes belong to a control string, which ends with BEL or ST; Screen removes these bytes
	changedModes []string  // the numbers of the terminal modes that the program has changed from their default
}

// NewScreen makes a Screen that draws on a terminal.
func NewScreen(to io.Writer) *Screen { return &Screen{to: to} }

const (
	escape = 0x1b // the ASCII character ESC, with which a control sequence begins
	bell   = 0x07 // the ASCII character BEL, which can end a control string
	// maxSequence is the largest number of bytes of a sequence. Screen removes the beginning of a longer sequence, and
	// handles the other bytes as text.
	maxSequence = 64
)

var (
	// cursorSequence matches the allowed sequences for colours, cursor movement, clearing, inserting and scrolling.
	// The numbers in a sequence have at most four digits.
	cursorSequence = regexp.MustCompile(`^[0-9]{0,4}([;:][0-9]{0,4}){0,20}[mHfABCDEFGJKLMPSTXZIdbr@]$`)
	// modeSequence matches a sequence that sets or resets a mode of the terminal.
	modeSequence = regexp.MustCompile(`^\?([0-9]{1,4})([hl])$`)
	// modes are the allowed modes, each with the final character that restores its default: cursor keys, line wrap, the
	// cursor, the alternate screen, bracketed paste and synchronised output.
	modes = map[string]string{"1": "l", "7": "h", "25": "h", "1049": "l", "2004": "l", "2026": "l"}
)

// Write writes the allowed text and sequences to the terminal. It returns len(p), although it may remove bytes.
func (s *Screen) Write(p []byte) (int, error) {
	s.pending = append(s.pending, p...)
	var out bytes.Buffer
	for len(s.pending) > 0 {
		n := s.handleFirst(&out)
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

// Close restores the terminal modes that the program has changed, and resets the colours.
func (s *Screen) Close() error {
	var out strings.Builder
	for _, m := range s.changedModes {
		out.WriteString("\x1b[?" + m + modes[m])
	}
	s.changedModes, s.pending, s.inString = nil, nil, false
	_, err := io.WriteString(s.to, out.String()+"\x1b[m")
	return err
}

// handleFirst handles the first character or sequence of the pending bytes, and returns its length. It returns 0 if the
// character or sequence is incomplete.
func (s *Screen) handleFirst(out *bytes.Buffer) int {
	first := s.pending[0]
	switch {
	case s.inString:
		return s.skipString()
	case first == escape:
		return s.passEscapeSequence(out)
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

// skipString handles the next byte of a control string, or the end of the string. It returns the number of bytes to
// remove; 0 if the end is incomplete.
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

// passEscapeSequence writes the escape sequence at the beginning of the pending bytes to out if the sequence is
// allowed. It returns the length of the sequence, or 0 if the sequence is incomplete.
func (s *Screen) passEscapeSequence(out *bytes.Buffer) int {
	if len(s.pending) < 2 {
		return 0
	}
	switch kind := s.pending[1]; kind {
	case '[':
		return s.passControlSequence(out)
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

// passControlSequence writes the control sequence (ESC and "[") at the beginning of the pending bytes to out if the
// sequence is allowed. It returns the length of the sequence, or 0 if the sequence is incomplete.
func (s *Screen) passControlSequence(out *bytes.Buffer) int {
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
		s.changedModes = slices.DeleteFunc(s.changedModes, func(mode string) bool { return mode == m[1] })
		if m[2] != modes[m[1]] {
			s.changedModes = append(s.changedModes, m[1])
		}
		out.WriteString("\x1b[" + body)
	case cursorSequence.MatchString(body):
		out.WriteString("\x1b[" + body)
	}
	return head + end + 1
}
