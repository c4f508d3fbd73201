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

// recordDir is the environment variable with the directory to which the texts are written. If the variable is not set,
// no text is written.
const recordDir = "TRIMTAB_RECORD"

// Book compares the texts that a test has recorded with the hashes in a golden file. A text belongs to an item, such as
// a scenario. Each line of the golden file has the name of an item and one hash for each text of the item.
type Book struct {
	file string

	mu    sync.Mutex
	items map[string][]string // the hashes of the added texts, by item
}

// Open makes a Book. file is the path of the golden file, relative to the test's directory. The Book is compared with
// the golden file when the test and its subtests have ended.
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

// AddItem adds the texts of an item. If recordDir is set, AddItem also writes the texts to files.
func (b *Book) AddItem(t testing.TB, item string, texts ...*Text) {
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

// writeFile writes a file, and creates its directory if necessary.
func writeFile(name, text string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text), 0o644)
}

// close compares the added items with the golden file. With the flag -update, it writes the golden file instead.
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
	partial := strings.Contains(flag.Lookup("test.run").Value.String(), "/")
	if *update {
		if partial {
			maps.Copy(golden, b.items)
			b.items = golden
		}
		if err := writeFile(b.file, b.String()); err != nil {
			t.Fatal(err)
		}
		return
	}
	b.compare(t, golden, partial)
}

// compare reports the items that differ from the golden file. partial means that the test ran only some of the items,
// so that missing items are no error.
func (b *Book) compare(t *testing.T, golden map[string][]string, partial bool) {
	t.Helper()
	for _, item := range slices.Sorted(maps.Keys(b.items)) {
		want, known := golden[item]
		got := b.items[item]
		if !known || len(want) != len(got) {
			t.Errorf("item %s is not in the golden file %s, or has another number of texts there: the flag -update writes the file again", item, b.file)
			continue
		}
		var differ []string
		for i := range got {
			if got[i] != want[i] {
				differ = append(differ, strconv.Itoa(i))
			}
		}
		if len(differ) > 0 {
			t.Errorf("item %s: text %s does not have the hash in %s; run the test in the old and in the new source tree with %s=dir and compare the texts with diff -r",
				item, strings.Join(differ, ", "), b.file, recordDir)
		}
	}
	if partial {
		return
	}
	for _, item := range slices.Sorted(maps.Keys(golden)) {
		if _, played := b.items[item]; !played {
			t.Errorf("item %s is in the golden file %s, but the test did not record it: the flag -update removes the item", item, b.file)
		}
	}
}

// String returns the content of the golden file for the added items.
func (b *Book) String() string {
	var out strings.Builder
	for _, item := range slices.Sorted(maps.Keys(b.items)) {
		out.WriteString(item + ": " + strings.Join(b.items[item], " ") + "\n")
	}
	return out.String()
}
