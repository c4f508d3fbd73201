package conductor_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain makes random histories start from the same seed each time, so that a failure comes
// from the change at hand. make soak, and -rapid.seed=0, play new ones.
func TestMain(m *testing.M) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "rapid.seed" })
	if !chosen {
		if err := flag.Set("rapid.seed", "1"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
