package statefile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/statefile"
)

// TestTrust refuses files that other users could have written, and a secret that other users could have
// read.
func TestTrust(t *testing.T) {
	const nobody = 65534
	for _, tt := range []struct {
		name         string
		make         func(file string) error
		read, secret bool
	}{
		{"our own", func(f string) error { return os.WriteFile(f, nil, 0o600) }, true, true},
		{"others may read", func(f string) error { return os.WriteFile(f, nil, 0o644) }, true, false},
		{"the group may read", func(f string) error { return os.WriteFile(f, nil, 0o640) }, true, false},
		{"the group may write", func(f string) error { return errors.Join(os.WriteFile(f, nil, 0o600), os.Chmod(f, 0o660)) }, false, false},
		{"others may write", func(f string) error { return errors.Join(os.WriteFile(f, nil, 0o600), os.Chmod(f, 0o602)) }, false, false},
		{"another's", func(f string) error { return errors.Join(os.WriteFile(f, nil, 0o600), os.Chown(f, nobody, nobody)) }, false, false},
		{"a link", func(f string) error {
			return errors.Join(os.WriteFile(f+"2", nil, 0o600), os.Symlink(f+"2", f))
		}, false, false},
		{"a directory", func(f string) error { return os.Mkdir(f, 0o700) }, false, false},
		{"a pipe", func(f string) error { return syscall.Mkfifo(f, 0o600) }, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := t.TempDir()
			if err := tt.make(filepath.Join(path, "f")); errors.Is(err, fs.ErrPermission) {
				t.Skip("needs root")
			} else if err != nil {
				t.Fatal(err)
			}
			dir := statefile.New(statefile.Disk(path), path)
			_, err := dir.Read("f")
			checkTrust(t, "read", err, tt.read)
			_, err = dir.ReadSecret("f")
			checkTrust(t, "read as a secret", err, tt.secret)
		})
	}
}

func checkTrust(t *testing.T, what string, err error, trusted bool) {
	t.Helper()
	if trusted != (err == nil) || err != nil && !errors.Is(err, statefile.ErrUntrusted) {
		t.Errorf("%s: %v, want trusted %t", what, err, trusted)
	}
}

// TestTrustDir: a directory that other users can add files to is reported.
func TestTrustDir(t *testing.T) {
	for mode, trusted := range map[fs.FileMode]bool{0o700: true, 0o755: true, 0o777: false, 0o777 | fs.ModeSticky: false} {
		path := filepath.Join(t.TempDir(), "d")
		if err := errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		checkTrust(t, mode.String(), statefile.New(statefile.Disk(path), path).Prepare(), trusted)
	}
}

// TestModes: created files are readable only by the owner, or by everybody.
func TestModes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	for _, tt := range []struct {
		dir       *statefile.Dir
		write     func(*statefile.Dir) error
		mode, own fs.FileMode
	}{
		{statefile.New(statefile.Disk(path), path), func(d *statefile.Dir) error { return d.Write("f", nil) }, 0o600, 0o700},
		{statefile.New(statefile.SharedDisk(path+"2"), path+"2"), func(d *statefile.Dir) error { return d.WriteShared("f", nil) }, 0o644, 0o755},
	} {
		if err := tt.write(tt.dir); err != nil {
			t.Fatal(err)
		}
		file, err := os.Stat(tt.dir.Path("f"))
		dir, err2 := os.Stat(filepath.Dir(tt.dir.Path("f")))
		if errors.Join(err, err2) != nil || file.Mode().Perm() != tt.mode || dir.Mode().Perm() != tt.own {
			t.Errorf("file %v, directory %v, want %v and %v", file.Mode(), dir.Mode(), tt.mode, tt.own)
		}
	}
}

// TestSeal: a signature is valid only for its text, its file and its key.
func TestSeal(t *testing.T) {
	key := []byte("a key of 32 bytes, as records have")
	object := []byte(`{"v":1,"pods":[]}`)
	sealed := statefile.Sign(key, "f", object)
	if err := statefile.VerifySignature(key, "f", sealed); err != nil {
		t.Error(err)
	}
	if string(object) != `{"v":1,"pods":[]}` {
		t.Errorf("the object is now %s", object)
	}
	refused := func(what string, key []byte, name string, data []byte) {
		t.Helper()
		if err := statefile.VerifySignature(key, name, data); !errors.Is(err, statefile.ErrUntrusted) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("another key", []byte("another"), "f", sealed)
	refused("another file", key, "g", sealed)
	refused("no code", key, "f", object)
	refused("nothing", key, "f", nil)
	refused("a checksum", key, "f", []byte(`{"v":1,"pods":[],"sum":"01234567"}`))
	for i := range sealed {
		flipped := append([]byte{}, sealed...)
		flipped[i] ^= 1
		refused("a flipped bit", key, "f", flipped)
		refused("a part", key, "f", sealed[:i])
	}
}

// TestRetry: pauses grow to a minute, and a success resets them.
func TestRetry(t *testing.T) {
	var r statefile.Retry
	now, failed := time.Unix(1000, 0), errors.New("full")
	if r.TooEarly(now) || r.Failed() {
		t.Error("rests before anything failed")
	}
	for _, want := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		r.SetResult(now, failed)
		if got := r.WaitTime(now); got != time.Duration(want)*time.Second || !r.TooEarly(now) || r.TooEarly(now.Add(got)) {
			t.Errorf("pauses %s, want %d s", got, want)
		}
	}
	r.SetResult(now, nil)
	if r.TooEarly(now) || r.Failed() {
		t.Error("rests after a success")
	}
}
