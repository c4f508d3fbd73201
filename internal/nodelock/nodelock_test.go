package nodelock

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func holder(id string) Holder {
	return Holder{ID: id, PID: os.Getpid(), Host: "node-" + id, Attach: "nri", Config: "/etc/" + id + ".yaml", Version: "v" + id, Started: time.Unix(1, 0).UTC()}
}

// taken returns the *Taken error that taking a lock must return.
func taken(t *testing.T, l *Lock) *InUseError {
	t.Helper()
	var other *InUseError
	if err := l.Take(); !errors.As(err, &other) {
		t.Fatalf("taken: %v", err)
	}
	return other
}

// TestOneAtATime: a second agent shares only one place, under another path. It learns which agent has the
// lock, holds no lock meanwhile, and gets the lock when the first agent ends.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	shared, mine, theirs := filepath.Join(root, "shared"), filepath.Join(root, "mine"), filepath.Join(root, "theirs")
	for _, dir := range []string{shared, mine, theirs} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(root, "link")
	if err := os.Symlink(shared, link); err != nil {
		t.Fatal(err)
	}
	first := New(holder("1"), LockedDir{mine, "mine"}, LockedDir{shared, "shared"}, LockedDir{filepath.Join(root, "missing"), "missing"})
	if err := first.Take(); err != nil {
		t.Fatal(err)
	}
	if err := first.Take(); err != nil {
		t.Errorf("taken again: %v", err)
	}
	second := New(holder("2"), LockedDir{theirs, "theirs"}, LockedDir{link, "link"})
	other := taken(t, second)
	if other.Holder != holder("1") {
		t.Errorf("it is %+v", other.Holder)
	}
	for _, want := range []string{"process ", "node-1", "attach: nri", "/etc/1.yaml", "v1", "1970-01-01T00:00:01Z", "link", "run one agent on a node"} {
		if !strings.Contains(other.Error(), want) {
			t.Errorf("%q lacks %q", other, want)
		}
	}
	third := New(holder("3"), LockedDir{theirs, "theirs"})
	if err := third.Take(); err != nil {
		t.Errorf("who stays out holds something: %v", err)
	}
	if err := errors.Join(third.Release(), first.Release()); err != nil {
		t.Error(err)
	}
	if err := second.Take(); err != nil {
		t.Errorf("handed over: %v", err)
	}
	if got := taken(t, first).Holder; got != holder("2") {
		t.Errorf("after the hand-over it is %+v", got)
	}
}

// TestReplacedDirectory: a runtime may create its directory again. Then the next agent finds another
// directory than the locked one.
func TestReplacedDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "nri")
	first, second := New(holder("1"), LockedDir{dir, "nri"}), New(holder("2"), LockedDir{dir, "nri"})
	make := func() {
		t.Helper()
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Take(); err != nil {
		t.Errorf("before there is a directory: %v", err)
	}
	make()
	for range 2 { // the directory appeared, or was replaced
		if err := first.Take(); err != nil {
			t.Fatal(err)
		}
		taken(t, second)
		if err := os.Rename(dir, dir+".old"); err != nil {
			t.Fatal(err)
		}
		make()
		if err := first.Take(); err != nil {
			t.Fatal(err)
		}
		taken(t, second)
		if err := os.RemoveAll(dir + ".old"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWithoutNotice: without a notice, or with an invalid one, the lock still counts.
func TestWithoutNotice(t *testing.T) {
	t.Parallel()
	for _, notice := range []string{"", "{", `{"pid":-1}`, strings.Repeat("x", 4000)} {
		dir := t.TempDir()
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		if notice != "" {
			if err := unix.Fsetxattr(int(f.Fd()), noticeNames[0], []byte(notice), 0); err != nil {
				t.Logf("this file system takes no notice: %v", err)
			}
		}
		other := taken(t, New(holder("2"), LockedDir{dir, "there"}))
		if other.Holder.ID != "" || !strings.Contains(other.Error(), "process") {
			t.Errorf("%q: %v", notice, other)
		}
		f.Close()
	}
}

// TestUnlockable: a place that cannot be opened is reported, and all others are locked.
func TestUnlockable(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	loop := filepath.Join(root, "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	l := New(holder("1"), LockedDir{loop, "loop"}, LockedDir{root, "root"})
	if err := l.Take(); err == nil || !strings.Contains(err.Error(), "lock the loop") {
		t.Errorf("a place that cannot be opened: %v", err)
	}
	taken(t, New(holder("2"), LockedDir{root, "root"}))
}

// TestLockOwner reads texts in the format of /proc/locks.
func TestLockOwner(t *testing.T) {
	t.Parallel()
	dev := unix.Mkdev(0, 28)
	for text, want := range map[string]int{
		"": 0,
		"1: FLOCK  ADVISORY  WRITE 1234 00:1c:77 0 EOF\n":                                                    1234,
		"1: POSIX  ADVISORY  WRITE 1 00:1c:77 0 EOF\n2: FLOCK  ADVISORY  READ 2 00:1c:77 0 EOF\n":            0,
		"1: -> FLOCK  ADVISORY  WRITE 5 00:1c:77 0 EOF\n9: FLOCK  ADVISORY  WRITE 7 00:1c:77 0 EOF\n":        7,
		"1: FLOCK  ADVISORY  WRITE 0 00:1c:77 0 EOF\n":                                                       0,
		"1: FLOCK  ADVISORY  WRITE 8 00:1d:77 0 EOF\n2: FLOCK  ADVISORY  WRITE 9 00:1c:78 0 EOF\nnonsense\n": 0,
	} {
		if got := findLockHolder(strings.NewReader(text), dev, 77); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
