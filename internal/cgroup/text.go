package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// unlimited is the text of "no limit" in version 2.
const unlimited = "max"

// encode returns the kernel's text for a value of the setting. It returns an error for a value out of range.
func (s *Setting) encode(version Version, v lifecycle.Value) (string, error) {
	if _, err := s.file(version); err != nil {
		return "", err
	}
	switch {
	case v.Field.IsNumeric():
		return s.encodeInt(version, v.Int)
	case s.Key == ExclusiveFile && v.Text == "":
		return "", nil // empty text means no exclusive CPUs, the value of a new cgroup
	case s.Kind == KindList:
		return encodeList(v.Text)
	case s.Kind == KindText:
		return encodeText(v.Text)
	}
	n, err := s.parse(v.Text)
	if err != nil {
		return "", err
	}
	return s.encodeInt(version, n)
}

// encodeInt returns the kernel's text for a number: for -1 the text of "no limit", and for shares the cpu.weight in
// version 2.
func (s *Setting) encodeInt(version Version, n int64) (string, error) {
	if n == -1 && s.Unlimited {
		if version == V1 {
			return "-1", nil
		}
		return unlimited, nil
	}
	if n < s.Min || n > s.Max {
		return "", fmt.Errorf("%d is not in the range %d..%d", n, s.Min, s.Max)
	}
	if s.Kind == KindShares && version == V2 {
		return strconv.FormatInt(Weight(n), 10), nil
	}
	return strconv.FormatInt(n, 10), nil
}

// Weight returns the cpu.weight for CPU shares by the linear formula of KEP-2254, which the kubelet uses. Newer OCI
// runtimes use another formula for containers (RuntimeWeight), so the shares cannot be computed from a weight.
func Weight(shares int64) int64 {
	return min(max(1+(shares-2)*9999/262142, 1), 10000)
}

// RuntimeWeight returns the cpu.weight that newer OCI runtimes compute from CPU shares. Their
// formula is quadratic in log2(shares), and maps the default shares 1024 to the default weight 100
// (opencontainers/cgroups 0.0.4, ConvertCPUSharesToCgroupV2Value).
func RuntimeWeight(shares int64) int64 {
	switch {
	case shares <= 2:
		return 1
	case shares >= 262144:
		return 10000
	}
	l := math.Log2(float64(shares))
	return int64(math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34)))
}

// encodeList returns a list of CPUs or memory nodes in the kernel's form. It returns an error for an empty list.
func encodeList(list string) (string, error) {
	ids, err := ParseIDs(list)
	if err != nil {
		return "", err
	}
	if ids.Empty() {
		return "", errors.New("the set is empty")
	}
	return ids.String(), nil
}

// encodeText returns a text without spaces around it. It returns an error if the text is empty, too long, or has more
// than one line.
func encodeText(text string) (string, error) {
	text = strings.TrimSpace(text)
	if text == "" || len(text) > maxPath || strings.ContainsAny(text, "\n\x00") {
		return "", fmt.Errorf("the text is empty, has more than one line, or has more than %d bytes", maxPath)
	}
	return text, nil
}

// Decode parses the kernel text of a setting, in the form that Handle.Read returns. The result is a value in canonical
// form. For a cpu.weight of cgroup version 2, Decode returns errors.ErrUnsupported, because the shares cannot be
// computed from a weight.
func Decode(version Version, field lifecycle.Field, key, text string) (lifecycle.Value, error) {
	v := lifecycle.Value{Field: field, Key: key}
	s, err := FindSetting(field, key)
	if err != nil {
		return v, err
	}
	text = strings.TrimSpace(text)
	switch s.Kind {
	case KindText:
		v.Text = text
		return v, nil
	case KindList:
		ids, err := ParseIDs(text)
		v.Text = ids.String()
		return v, err
	case KindShares:
		if version == V2 {
			return v, fmt.Errorf("compute the CPU shares from a cpu.weight: %w", errors.ErrUnsupported)
		}
	}
	n, err := s.parse(text)
	if err != nil {
		return v, err
	}
	if s.Kind == KindBytes {
		n = s.wholePages(n)
	}
	if field.IsNumeric() {
		v.Int = n
	} else if v.Text = strconv.FormatInt(n, 10); n == -1 && s.Unlimited {
		v.Text = unlimited
	}
	return v, nil
}

// parse parses a number in the form of the setting's kernel text. It returns -1 for no limit.
func (s *Setting) parse(text string) (int64, error) {
	text = strings.TrimSpace(text)
	if digits, negative := strings.CutPrefix(text, "-"); negative && s.Kind == KindSigned {
		n, err := parseNumber(digits, false)
		return -n, err
	}
	return parseNumber(text, s.Unlimited)
}

// parseNumber parses a decimal number that is not negative. If mayBeUnlimited is true, it also accepts "max" and "-1",
// which mean no limit, and returns -1 for them.
func parseNumber(text string, mayBeUnlimited bool) (int64, error) {
	if mayBeUnlimited && (text == unlimited || text == "-1") {
		return -1, nil
	}
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, fmt.Errorf("%q is not a number", shorten(text))
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the number %s is too large", shorten(text))
	}
	return n, nil
}

// wholePages rounds bytes down to whole pages, like the kernel. It returns -1 for the value that
// version 1 shows for "no limit" (9223372036854771712 with pages of 4 KiB).
func (s *Setting) wholePages(n int64) int64 {
	size := int64(os.Getpagesize())
	if s.Field == lifecycle.Hugepages {
		size, _ = pageBytes(s.Key) // FindSetting has checked the key
	}
	if n < 0 || n/size >= math.MaxInt64/size {
		return -1
	}
	return n / size * size
}

// isSame reports whether two kernel texts of a setting mean the same value. Examples are "max" and
// "-1", "0,1" and "0-1", or a number of bytes and the same number rounded down to whole pages.
func (s *Setting) isSame(a, b string) bool {
	switch s.Kind {
	case KindText:
		return strings.Join(strings.Fields(a), " ") == strings.Join(strings.Fields(b), " ")
	case KindList:
		x, errA := ParseIDs(a)
		y, errB := ParseIDs(b)
		return errA == nil && errB == nil && x == y
	}
	x, errA := s.parse(a)
	y, errB := s.parse(b)
	if s.Kind == KindBytes {
		x, y = s.wholePages(x), s.wholePages(y)
	}
	return errA == nil && errB == nil && x == y
}

// compare returns -1 if kernel text a means less than b, 0 if both mean the same, and 1 if a means more. "No limit" is
// more than any limit. Text that is not valid counts as no limit. So if the present text of a file is not valid, the
// new value counts as smaller. The keeper then writes the file before the files whose values grow.
func (s *Setting) compare(a, b string) int {
	read := func(text string) uint64 {
		n, err := s.parse(text)
		switch s.Kind {
		case KindBytes:
			n = s.wholePages(n)
		case KindSigned:
			n -= s.Min
		}
		if err != nil || n < 0 {
			return math.MaxUint64
		}
		return uint64(n)
	}
	return cmp.Compare(read(a), read(b))
}
