package recorded

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files again")

// recordDir names the directory that texts are written to, if it is set.
const recordDir = "TRIMTAB_RECORD"

// Book compares the plays of a test with a golden file. Each of its lines has the name of an item and a hash for each
// of the item's texts.
type Book struct {
	file string

	mu    sync.Mutex
	items map[string][]string
}

// Open opens the book whose golden file is at a path below the test's directory. The book is compared when the test and
// its subtests have ended.
func Open(t *testing.T, file string) *Book {
	t.Helper()
	b := &Book{file: file, items: map[string][]string{}}
	t.Cleanup(func() {
		if !t.Failed() {
			b.close(t)
		}
	})
	return b
}

// Keep adds the texts of an item.
func (b *Book) Keep(t testing.TB, item string, texts ...*Text) {
	t.Helper()
	hashes := make([]string, len(texts))
	for i, text := range texts {
		sum := sha256.Sum256([]byte(text.String()))
		hashes[i] = hex.EncodeToString(sum[:8])
		if dir := os.Getenv(recordDir); dir != "" { //nolint:forbidigo // only for tests
			name := filepath.Join(dir, strings.TrimSuffix(filepath.Base(b.file), ".sha256"), strings.ReplaceAll(item, " ", "-"))
			if len(texts) > 1 {
				name = filepath.Join(name, strconv.Itoa(i))
			}
			if err := writeFile(name+".txt", text.String()); err != nil {
				t.Error(err)
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.items[item] = hashes
}

func writeFile(name, text string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text), 0o644)
}

// close compares the kept texts with the golden file, or writes the file.
func (b *Book) close(t *testing.T) {
	t.Helper()
	data, err := os.ReadFile(b.file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	golden := map[string][]string{}
	for line := range strings.Lines(string(data)) {
		if item, hashes, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			golden[item] = strings.Fields(hashes)
		}
	}
	part := strings.Contains(flag.Lookup("test.run").Value.String(), "/")
	if *update {
		if part {
			maps.Copy(golden, b.items)
			b.items = golden
		}
		if err := writeFile(b.file, b.String()); err != nil {
			t.Fatal(err)
		}
		return
	}
	b.compare(t, golden, part)
}

// compare reports the items that differ. part is set if the test played only some of the items.
func (b *Book) compare(t *testing.T, golden map[string][]string, part bool) {
	t.Helper()
	for _, item := range slices.Sorted(maps.Keys(b.items)) {
		want, known := golden[item]
		got := b.items[item]
		if !known || len(want) != len(got) {
			t.Errorf("%s is not in %s: -update adds it", item, b.file)
			continue
		}
		var differ []string
		for i := range got {
			if got[i] != want[i] {
				differ = append(differ, strconv.Itoa(i))
			}
		}
		if len(differ) > 0 {
			t.Errorf("%s: text %s differs from the recorded one in %s; run both trees with %s=dir and compare the texts with diff -r",
				item, strings.Join(differ, ", "), b.file, recordDir)
		}
	}
	if part {
		return
	}
	for _, item := range slices.Sorted(maps.Keys(golden)) {
		if _, played := b.items[item]; !played {
			t.Errorf("%s is in %s, but was not played: -update removes it", item, b.file)
		}
	}
}

// String returns the golden file.
func (b *Book) String() string {
	var out strings.Builder
	for _, item := range slices.Sorted(maps.Keys(b.items)) {
		out.WriteString(item + ": " + strings.Join(b.items[item], " ") + "\n")
	}
	return out.String()
}
