package agent

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/statefile"
)

// TestLockState checks that only one agent can use a directory, that the next agent gets it when the first
// one ends, and that the message says what to do.
func TestLockState(t *testing.T) {
	path := t.TempDir()
	dir := statefile.New(statefile.Disk(path), path)
	never := func(by string) { t.Errorf("it waits for %s", by) }
	first, err := lockState(dir, time.Minute, never)
	if err != nil {
		t.Fatal(err)
	}
	_, err = lockState(dir, 0, never)
	if want := fmt.Sprintf("another agent (process %d) uses the state directory %s: stop that agent", os.Getpid(), path); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("a second agent: %v, wanted %s", err, want)
	}
	second, err := lockState(dir, time.Minute, func(string) { _ = first.Close() })
	if err != nil {
		t.Fatalf("handed over: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}
