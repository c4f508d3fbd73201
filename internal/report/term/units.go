package term

import (
	"fmt"
	"strconv"
	"strings"
)

// Bytes formats an amount of memory in the largest binary unit that fits at least once, with at most one decimal: 4
// GiB, 1.5 GiB, 512 KiB, 100 bytes.
func Bytes(n int64) string {
	for _, u := range []struct {
		name string
		size float64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if v := float64(n) / u.size; v >= 1 || v <= -1 {
			return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") + " " + u.name
		}
	}
	return Count(int(n), "byte")
}

// CPUs formats thousandths of a CPU: 4 CPU, 0.25 CPU.
func CPUs(milli int64) string {
	return strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64) + " CPU"
}

// Microseconds formats a duration in microseconds: 25 ms, 2.5 ms, 50 µs.
func Microseconds(n int64) string {
	if n >= 1000 && n%100 == 0 {
		return strconv.FormatFloat(float64(n)/1000, 'f', -1, 64) + " ms"
	}
	return fmt.Sprint(n) + " µs"
}
