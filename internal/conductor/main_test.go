package conductor_test

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"

	"github.com/trimtab/trimtab/test/clock"
)

// raceHistories is how many random histories a property plays with the race detector, which makes them several times
// slower. Without it, rapid's default of 100 applies; make soak plays a thousand new ones.
const raceHistories = "30"

// TestMain makes random histories start from the same seed each time, so that a failure comes
// from the change at hand. make soak, and -rapid.seed=0, play new ones.
func TestMain(m *testing.M) {
	flag.Parse()
	chosen := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { chosen[f.Name] = true })
	defaults := map[string]string{"rapid.seed": "1"}
	if clock.RaceDetector {
		defaults["rapid.checks"] = raceHistories
	}
	for name, value := range defaults {
		if chosen[name] {
			continue
		}
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	debug.SetGCPercent(400) // the tests need much CPU time and little memory
	os.Exit(m.Run())
}
