package term_test

import (
	"testing"

	"github.com/trimtab/trimtab/internal/report/term"
)

func TestUnits(t *testing.T) {
	for got, want := range map[string]string{
		term.Bytes(0):              "0 bytes",
		term.Bytes(1):              "1 byte",
		term.Bytes(1023):           "1023 bytes",
		term.Bytes(1024):           "1 KiB",
		term.Bytes(64 << 20):       "64 MiB",
		term.Bytes(3 << 29):        "1.5 GiB",
		term.Bytes(16 << 30):       "16 GiB",
		term.Bytes(1 << 50):        "1024 TiB",
		term.CPUs(4000):            "4 CPU",
		term.CPUs(250):             "0.25 CPU",
		term.CPUs(1500):            "1.5 CPU",
		term.Microseconds(25000):   "25 ms",
		term.Microseconds(2500):    "2.5 ms",
		term.Microseconds(50):      "50 µs",
		term.Microseconds(1234567): "1234567 µs",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
