package term

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Bytes formats an amount of memory in the largest binary unit that is not larger than the amount, such as 4 GiB,
// 1.5 GiB or 100 bytes.
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

// CPUs formats thousandths of a CPU, such as 4 CPU or 0.25 CPU.
func CPUs(milli int64) string {
	return strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64) + " CPU"
}

// Microseconds formats a number of microseconds, such as 25 ms, 2.5 ms or 50 µs.
func Microseconds(n int64) string {
	if n >= 1000 && n%100 == 0 {
		return strconv.FormatFloat(float64(n)/1000, 'f', -1, 64) + " ms"
	}
	return fmt.Sprint(n) + " µs"
}

// Age formats an age, such as 12s, 5m or 2h3m.
func Age(d time.Duration) string {
	if d < time.Minute {
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}
