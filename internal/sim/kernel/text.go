package kernel

import (
	"math"
	"math/bits"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// The functions of this file parse the texts of writes as the kernel does.

// unlimitedText is the text for no limit in version 2.
const unlimitedText = "max"

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }

// formatBool returns "1" for true and "0" for false.
func formatBool(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func isBlank(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// trimBlanks removes blanks from both ends of a text, like the kernel's strstrip.
func trimBlanks(text string) string { return strings.Trim(text, " \t\n\v\f\r") }

// parseDigits parses the digits at the beginning of a text. If base is 0, the prefix 0x means hexadecimal, and the
// prefix 0 means octal. parseDigits returns the value modulo 2^64, whether the value overflowed, and the rest of the
// text.
func parseDigits(text string, base uint64) (n uint64, overflow bool, rest string) {
	digit := func(c byte) uint64 {
		switch {
		case c >= '0' && c <= '9':
			return uint64(c - '0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			return uint64(c|0x20-'a') + 10
		}
		return 99
	}
	if base == 0 {
		base = 10
		if strings.HasPrefix(text, "0") {
			base = 8
			if len(text) > 2 && text[1]|0x20 == 'x' && digit(text[2]) < 16 {
				base, text = 16, text[2:]
			}
		}
	}
	for text != "" && digit(text[0]) < base {
		hi, lo := bits.Mul64(n, base)
		sum, carry := bits.Add64(lo, digit(text[0]), 0)
		overflow = overflow || hi != 0 || carry != 0
		n, text = sum, text[1:]
	}
	return n, overflow, text
}

// kernelUint parses a number like kstrtoull with base 0. The number may be hexadecimal or octal, have the sign +, and
// be followed by one newline. Leading blanks are an error.
func kernelUint(text string) (uint64, error) {
	text = strings.TrimPrefix(text, "+")
	n, overflow, rest := parseDigits(text, 0)
	switch {
	case rest == text:
		return 0, syscall.EINVAL
	case overflow:
		return 0, syscall.ERANGE // even if the rest of the text is invalid
	case rest != "" && rest != "\n":
		return 0, syscall.EINVAL
	}
	return n, nil
}

// kernelInt parses a number like kstrtoll: like kernelUint, but with an optional sign + or -.
func kernelInt(text string) (int64, error) {
	most, sign := uint64(math.MaxInt64), int64(1)
	if strings.HasPrefix(text, "-") {
		if text = text[1:]; strings.HasPrefix(text, "+") {
			return 0, syscall.EINVAL
		}
		most, sign = 1<<63, -1
	}
	n, err := kernelUint(text)
	switch {
	case err != nil:
		return 0, err
	case n > most:
		return 0, syscall.ERANGE
	}
	return sign * int64(n), nil
}

// kernelInt32 parses a number of 32 bits like kstrtoint.
func kernelInt32(text string) (int64, error) {
	n, err := kernelInt(text)
	if err == nil && n != int64(int32(n)) {
		err = syscall.ERANGE
	}
	return n, err
}

// scanUint parses a decimal number like %llu of sscanf. It skips leading blanks, and stops at the first character that
// is not a digit. It returns the number modulo 2^64, and the rest of the text.
func scanUint(text string) (n uint64, rest string, ok bool) {
	text = strings.TrimLeft(text, " \t\n\v\f\r")
	n, _, rest = parseDigits(text, 10)
	return n, rest, rest != text
}

// scanWord parses a word of at most n bytes like %s of sscanf. It returns the word, and the rest of the text.
func scanWord(text string, n int) (word, rest string) {
	text = strings.TrimLeft(text, " \t\n\v\f\r")
	i := 0
	for i < len(text) && i < n && !isBlank(text[i]) {
		i++
	}
	return text[:i], text[i:]
}

// kernelBytes parses a limit in bytes like page_counter_memparse. The number may have a suffix from K to E. The result
// is rounded down to whole pages. none is the text for no limit. A number above the greatest limit also means no limit.
// An empty text means 0.
func kernelBytes(text, none string) (int64, error) {
	text = trimBlanks(text)
	if text == none {
		return cgroup.UnlimitedBytes(), nil
	}
	n, _, rest := parseDigits(text, 0)
	if rest != "" {
		if i := strings.IndexByte("kmgtpe", rest[0]|0x20); i >= 0 {
			n, rest = n<<(10*(i+1)), rest[1:]
		}
	}
	if rest != "" {
		return 0, syscall.EINVAL
	}
	size := uint64(os.Getpagesize())
	return int64(min(n/size*size, uint64(cgroup.UnlimitedBytes()))), nil
}

// kernelList parses a list of ids below size like bitmap_parselist, up to the first newline. It skips blanks and empty
// elements. The list may have "all", N for the last id, and strides such as "0-7:1/2".
func kernelList(text string, size int) (cgroup.IDs, error) {
	var s cgroup.IDs
	text, _, _ = strings.Cut(text, "\n")
	for {
		text = strings.TrimLeft(text, ", \t\v\f\r")
		if text == "" {
			return s, nil
		}
		r, rest, err := parseRegion(text, size)
		switch {
		case err != nil:
			return cgroup.IDs{}, err
		case r.start > r.end || r.group == 0 || r.off > r.group:
			return cgroup.IDs{}, syscall.EINVAL
		case r.end >= size:
			return cgroup.IDs{}, syscall.ERANGE
		}
		for i := r.start; i <= r.end; i += r.group {
			for id := i; id < min(i+r.off, r.end+1); id++ {
				s[id>>6] |= 1 << (id & 63)
			}
		}
		text = rest
	}
}

// idRegion is an element of a list, such as "0-7:1/2" for 0, 2, 4 and 6. The ids from start to end are divided into
// groups. The field group is the number of ids in a group, and off is how many ids of each group, from its first id,
// are in the list.
type idRegion struct{ start, end, off, group int }

// parseRegion parses the first element of a list. It returns the element, and the rest of the list.
func parseRegion(text string, size int) (idRegion, string, error) {
	var r idRegion
	var err error
	ends := func() bool { return text == "" || text[0] == ',' || isBlank(text[0]) }
	take := func(into *int) bool {
		*into, text, err = regionNumber(text, size)
		return err == nil
	}
	after := func(sep byte) bool {
		if err == nil && (text == "" || text[0] != sep) {
			err = syscall.EINVAL
		}
		if err == nil {
			text = text[1:]
		}
		return err == nil
	}
	if len(text) >= 3 && strings.EqualFold(text[:3], "all") {
		r.end, text = size-1, text[3:]
	} else {
		if !take(&r.start) {
			return r, "", err
		}
		r.end = r.start
		if !ends() && (!after('-') || !take(&r.end)) {
			return r, "", err
		}
	}
	if ends() {
		r.off, r.group = r.end+1, r.end+1
		return r, text, nil
	}
	if after(':') && take(&r.off) && after('/') {
		take(&r.group)
	}
	return r, text, err
}

// regionNumber parses a number, or N for the last id. It returns the number, and the rest of the text.
func regionNumber(text string, size int) (int, string, error) {
	if strings.HasPrefix(text, "N") {
		return size - 1, text[1:], nil
	}
	n, overflow, rest := parseDigits(text, 10)
	switch {
	case rest == text:
		return 0, "", syscall.EINVAL
	case overflow || n > math.MaxUint32:
		return 0, "", syscall.EOVERFLOW
	}
	return int(n), rest, nil
}
