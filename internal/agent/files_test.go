package agent

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// TestDamagedCheckpoint damages each byte of a checkpoint, and cuts it off behind
// each: it is put aside and told of, and nothing of it is used.
func TestDamagedCheckpoint(t *testing.T) {
	m, err := describe.Parse("1s x 1n x 2c")
	if err != nil {
		t.Fatal(err)
	}
	good := conductor.New(conductor.Options{Machine: m, Log: slog.New(slog.DiscardHandler), Now: time.Now, Keeper: keeper.New(&cgroup.Tree{})}).Checkpoint()
	name := bytes.LastIndex(good, []byte("sum"))
	for i := range good {
		if i >= name && i < name+len("sum") {
			continue // what it holds is whole, and an earlier agent wrote no sum
		}
		flipped := bytes.Clone(good)
		flipped[i] ^= 1
		checkPutAside(t, flipped)
		if i > 0 {
			checkPutAside(t, good[:i])
		}
	}
	if a := (&Agent{opt: Options{Config: stateIn(t, good)}, log: slog.New(slog.DiscardHandler)}); !bytes.Equal(a.loadCheckpoint(), good) {
		t.Error("a good checkpoint is not used")
	}
}

func stateIn(t *testing.T, checkpoint []byte) config.Config {
	t.Helper()
	c := config.Default()
	c.Paths.State = t.TempDir()
	if err := os.WriteFile(filepath.Join(c.Paths.State, checkpointName), checkpoint, 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

func checkPutAside(t *testing.T, damaged []byte) {
	t.Helper()
	var log bytes.Buffer
	a := &Agent{opt: Options{Config: stateIn(t, damaged)}, log: slog.New(slog.NewTextHandler(&log, nil))}
	if got := a.loadCheckpoint(); got != nil {
		t.Errorf("%q is used: %q", damaged, got)
		return
	}
	file := filepath.Join(a.opt.Config.Paths.State, checkpointName)
	kept, err := os.ReadFile(file + badSuffix)
	_, gone := os.Stat(file)
	if err != nil || !bytes.Equal(kept, damaged) || !errors.Is(gone, fs.ErrNotExist) || !bytes.Contains(log.Bytes(), []byte(badSuffix)) {
		t.Errorf("%q: put aside as %q (%v), and the file: %v; said %s", damaged, kept, err, gone, log.Bytes())
	}
}
