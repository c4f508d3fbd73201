package conductor_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain has random histories start from the same seed each time: what fails
// is then the doing of the change at hand. New ones are played by make soak, and
// by -rapid.seed=0.
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
