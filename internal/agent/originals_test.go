package agent

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/trimtab/trimtab/internal/statefile"
)

// TestOriginals: the journal keeps lines after a kill, recognises an incomplete line, locks its file, and
// drops lines of another boot.
func TestOriginals(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	dir := statefile.New(statefile.Disk(path), path)
	open := func() (*originals, []byte, bool) {
		t.Helper()
		o, earlier, locked, err := openOriginals(dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return o, earlier, locked
	}
	first, earlier, locked := open()
	if earlier != nil || !locked {
		t.Fatalf("a new journal has %q, locked %t", earlier, locked)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(first.Append([]byte("one\n")))
	second, earlier, locked := open()
	if string(earlier) != "one\n" || locked {
		t.Errorf("beside the first: %q, locked %t", earlier, locked)
	}
	must(second.Close())
	must(first.Replace([]byte("two\n")))
	if _, _, locked = open(); locked {
		t.Error("replacing a journal let its lock go")
	}
	must(first.Append([]byte("thr"))) // the process is killed here
	must(first.Close())
	third, earlier, locked := open()
	if string(earlier) != "two\nthr" || !locked {
		t.Errorf("after a kill: %q, locked %t", earlier, locked)
	}
	must(third.Append([]byte("four\n")))
	must(third.Close())
	file := filepath.Join(path, originalsFile)
	data, err := os.ReadFile(file)
	must(err)
	if !bytes.HasSuffix(data, []byte("two\nthr\nfour\n")) {
		t.Errorf("after a torn line: %q", data)
	}
	must(os.WriteFile(file, []byte("{\"boot\":\"another\"}\nold\n"), 0o600))
	if _, earlier, _ = open(); earlier == nil || len(earlier) > 0 {
		t.Errorf("of another boot: %q", earlier)
	}
}
