package agent

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/placement/none"
	"github.com/trimtab/trimtab/internal/statefile"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// TestDamagedState damages each byte of a checkpoint, and truncates it after each byte: the agent renames
// the file, reports that, and uses nothing of it.
func TestDamagedState(t *testing.T) {
	good := sealed(t, testKey)
	for i := range good {
		flipped := bytes.Clone(good)
		flipped[i] ^= 1
		checkPutAside(t, flipped, 0o600)
		checkPutAside(t, good[:i], 0o600)
	}
	if a := filesWith(t, good, 0o600, slog.DiscardHandler); !bytes.Equal(a.load(checkpointFile), good) {
		t.Error("a good checkpoint is not used")
	}
}

// TestForeignState: the agent uses no checkpoint that another program wrote, or could have written,
// whatever its content is.
func TestForeignState(t *testing.T) {
	good := sealed(t, testKey)
	checkPutAside(t, good, 0o666)
	checkPutAside(t, good, 0o620)
	checkPutAside(t, sealed(t, []byte("the key of another node")), 0o600)
	checkPutAside(t, sealed(t, nil), 0o600)
	checkPutAside(t, statefile.Sign(testKey, podSpecsFile, checkpointOf(t)), 0o600)
	body := checkpointOf(t)[:len(checkpointOf(t))-1]
	sum := crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)) // which needs no key
	checkPutAside(t, fmt.Appendf(nil, `%s,"sum":"%08x"}`, body, sum), 0o600)
	if os.Geteuid() == 0 {
		a := filesWith(t, good, 0o600, slog.DiscardHandler)
		if err := os.Chown(a.dir.Path(checkpointFile), 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if a.load(checkpointFile) != nil {
			t.Error("a checkpoint that another user owns is used")
		}
	}
}

// TestForeignKey: the agent signs nothing with a key that other users could have read.
func TestForeignKey(t *testing.T) {
	c := config.Default()
	c.Paths.Key = filepath.Join(t.TempDir(), "key")
	start := func() *stateFiles { return &stateFiles{paths: c.Paths, log: slog.New(slog.DiscardHandler)} } // reads it once
	made, err := start().recordKey()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := start().recordKey(); err != nil || !bytes.Equal(made, again) {
		t.Errorf("read again: %v", err)
	}
	if err := os.Chmod(c.Paths.Key, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := start().recordKey(); !errors.Is(err, statefile.ErrUntrusted) {
		t.Errorf("a key the group can read: %v", err)
	}
}

var testKey = []byte("a key of the test, 32 bytes long")

func checkpointOf(t *testing.T) []byte {
	t.Helper()
	m, err := describe.Parse("1s x 1n x 2c")
	if err != nil {
		t.Fatal(err)
	}
	return conductor.New(conductor.Options{Machine: m, Policy: engine.Policy{Placement: none.Policy{}}, Log: slog.New(slog.DiscardHandler), Keeper: keeper.New(&cgroup.Tree{}), Now: time.Now}).Checkpoint().Text()
}

func sealed(t *testing.T, key []byte) []byte {
	t.Helper()
	return statefile.Sign(key, checkpointFile, checkpointOf(t))
}

func filesWith(t *testing.T, checkpoint []byte, mode fs.FileMode, log slog.Handler) *stateFiles {
	t.Helper()
	c := config.Default()
	c.Paths.State = t.TempDir()
	a := &stateFiles{paths: c.Paths, log: slog.New(log), signingKey: testKey}
	a.dir = stateDirectory(nil, c.Paths.State)
	file := a.dir.Path(checkpointFile)
	if err := errors.Join(os.WriteFile(file, checkpoint, 0o600), os.Chmod(file, mode)); err != nil {
		t.Fatal(err)
	}
	return a
}

func checkPutAside(t *testing.T, bad []byte, mode fs.FileMode) {
	t.Helper()
	var log bytes.Buffer
	a := filesWith(t, bad, mode, slog.NewTextHandler(&log, nil))
	if got := a.load(checkpointFile); got != nil {
		t.Errorf("%q with mode %v is used: %q", bad, mode, got)
		return
	}
	file := a.dir.Path(checkpointFile)
	kept, err := os.ReadFile(file + statefile.DamagedSuffix)
	_, gone := os.Stat(file)
	if err != nil || !bytes.Equal(kept, bad) || !errors.Is(gone, fs.ErrNotExist) || !bytes.Contains(log.Bytes(), []byte(statefile.DamagedSuffix)) {
		t.Errorf("%q: put aside as %q (%v), and the file: %v; said %s", bad, kept, err, gone, log.Bytes())
	}
}
