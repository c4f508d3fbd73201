package statefile_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/statefile"
	"github.com/trimtab/trimtab/test/faults"
)

// most is more than the number of calls in any of these tests, and than the number of fault kinds of any
// call.
const (
	most  = 100
	kinds = 6
)

// everyFault runs a test with each call failing in turn, in each way: only that call, or all calls from it
// on.
func everyFault(t *testing.T, play func(t *testing.T, p *faults.Plan)) {
	t.Helper()
	sum := faults.FailCalls(0, -1, 0)
	for _, lasting := range []bool{false, true} {
		for which := range kinds {
			if lasting && which > 1 {
				break // how a lasting failure of writes ends is the same for every writer
			}
			for n := range most {
				last := n
				if lasting {
					last = most
				}
				p := faults.FailCalls(n, last, which)
				t.Run(fmt.Sprintf("call %d, kind %d, lasting %t", n, which, lasting), func(t *testing.T) { play(t, p) })
				sum.Add(p)
				if p.Faults() == 0 {
					break // the test has no more calls
				}
			}
		}
	}
	t.Log(sum)
}

// TestWriteEveryFault: whatever fails, a file has either its old or its new content, complete; the new one
// if Write succeeded. When nothing fails any more a write succeeds.
func TestWriteEveryFault(t *testing.T) {
	everyFault(t, func(t *testing.T, p *faults.Plan) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "state")
		good := statefile.New(faults.Files(faults.FailCalls(0, -1, 0), statefile.Disk(path)), path)
		before, after := []byte(strings.Repeat("before ", 1000)), []byte(strings.Repeat("after ", 2000))
		if err := errors.Join(good.Prepare(), good.Write("f", before)); err != nil {
			t.Fatal(err)
		}
		dir := statefile.New(faults.Files(p, statefile.Disk(path)), path)
		prepared := dir.Prepare("f")
		err := dir.Write("f", after)
		if p.Faults() == 0 && errors.Join(prepared, err) != nil {
			t.Error(prepared, err)
		}
		checkRead(t, p, dir, err)
		p.Off()
		got, readErr := dir.Read("f")
		if readErr != nil || !bytes.Equal(got, after) && (err == nil || !bytes.Equal(got, before)) {
			t.Errorf("%d bytes (%v) after a write that said %v", len(got), readErr, err)
		}
		if err := errors.Join(dir.Write("f", after), dir.Prepare("f")); err != nil {
			t.Errorf("once nothing fails: %v", err)
		}
		if names, err := statefile.Disk(path).Names(); err != nil || len(names) != 1 {
			t.Errorf("left in the directory: %q, %v", names, err)
		}
	})
}

// checkRead reads while calls fail: the complete content or an error.
func checkRead(t *testing.T, p *faults.Plan, dir *statefile.Dir, wrote error) {
	t.Helper()
	got, err := dir.Read("f")
	if err == nil && !bytes.HasPrefix(got, []byte("before")) && !bytes.HasPrefix(got, []byte("after")) {
		t.Errorf("read %d bytes of something else", len(got))
	}
	if err != nil && (len(got) > 0 || p.Faults() == 0) {
		t.Errorf("read %d bytes and %v, after %v", len(got), err, wrote)
	}
}

// TestLinesEveryFault: added lines are there for the next process, and lines that could not be added are
// there after Replace. An unreadable file of an earlier process is renamed, not overwritten.
func TestLinesEveryFault(t *testing.T) {
	everyFault(t, func(t *testing.T, p *faults.Plan) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "state")
		good := statefile.New(faults.Files(faults.FailCalls(0, -1, 0), statefile.Disk(path)), path)
		if err := good.Prepare(); err != nil {
			t.Fatal(err)
		}
		l, _, _, err := statefile.OpenLines(good, "lines", "boot")
		if err := errors.Join(err, l.Append([]byte("earlier\n")), l.Close()); err != nil {
			t.Fatal(err)
		}
		l, earlier, alone, opened := statefile.OpenLines(statefile.New(faults.Files(p, statefile.Disk(path)), path), "lines", "boot")
		if !alone {
			t.Error("another process is said to hold the file")
		}
		if earlier != nil && string(earlier) != "earlier\n" || earlier == nil && opened == nil {
			t.Errorf("an earlier process left %q (%v)", earlier, opened)
		}
		all, kept := string(earlier), earlier != nil && opened == nil
		for i := range 4 {
			line := fmt.Sprintf("line %d\n", i)
			all += line
			if !kept || l.Append([]byte(line)) != nil {
				kept = l.Replace([]byte(all)) == nil
			}
		}
		checkLines(t, good, all, kept)
		p.Off()
		if err := l.Replace([]byte(all)); err != nil {
			t.Errorf("once nothing fails: %v", err)
		}
		checkLines(t, good, all, true)
		aside, err := os.ReadFile(filepath.Join(path, "lines"+statefile.DamagedSuffix))
		if earlier == nil && (err != nil || !strings.HasPrefix(string(aside), "boot\nearlier\n")) {
			t.Errorf("what could not be read is lost: %q, %v", aside, err)
		}
		_ = l.Close() // the test may make it fail
	})
}

// checkLines reads what the next process would read.
func checkLines(t *testing.T, dir *statefile.Dir, all string, kept bool) {
	t.Helper()
	data, err := dir.Read("lines")
	if kept && (err != nil || string(data) != "boot\n"+all) {
		t.Errorf("said to be kept: %q, %v; want %q", data, err, all)
	}
}

// TestLinesRemoved: lines that are added to a removed file are lost.
func TestLinesRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	dir := statefile.New(statefile.Disk(path), path)
	if err := dir.Prepare(); err != nil {
		t.Fatal(err)
	}
	l, _, _, err := statefile.OpenLines(dir, "lines", "boot")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	if err := l.Append([]byte("one\n")); err == nil {
		t.Error("a line was added to a file without a name")
	}
	if err := l.Replace([]byte("one\n")); err != nil {
		t.Errorf("the directory is not made anew: %v", err)
	}
	checkLines(t, dir, "one\n", true)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
