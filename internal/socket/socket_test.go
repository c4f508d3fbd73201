package socket_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/internal/socket"
)

// TestMode: a socket has its mode from the moment it exists. With a umask of 0 the kernel would report a
// later change.
func TestMode(t *testing.T) {
	for _, mask := range []int{0, 0o022, 0o077} {
		for _, mode := range []fs.FileMode{0o600, 0o660} {
			t.Run(fmt.Sprintf("umask %04o mode %04o", mask, mode), func(t *testing.T) {
				dir := t.TempDir()
				w, err := fsnotify.NewWatcher()
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()
				if err := w.Add(dir); err != nil {
					t.Fatal(err)
				}
				old := syscall.Umask(mask)
				l, err := socket.Listen(t.Context(), filepath.Join(dir, "s"), mode)
				syscall.Umask(old)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				if info, err := os.Lstat(filepath.Join(dir, "s")); err != nil || info.Mode() != fs.ModeSocket|mode {
					t.Fatalf("%v, %v", info.Mode(), err)
				}
				if err := os.Mkdir(filepath.Join(dir, "end"), 0o700); err != nil {
					t.Fatal(err)
				}
				for ev := range w.Events {
					if filepath.Base(ev.Name) == "end" {
						break
					}
					if ev.Has(fsnotify.Chmod) && mask == 0 {
						t.Errorf("it had another mode before: %v", ev)
					}
				}
			})
		}
	}
}

func TestNoDirectory(t *testing.T) {
	if l, err := socket.Listen(t.Context(), filepath.Join(t.TempDir(), "none", "s"), 0o600); err == nil {
		l.Close()
		t.Error("it listens where no directory is")
	}
}

// TestNobodyElseListens: only this package opens sockets; others would not set the mode when they are
// bound.
func TestNobodyElseListens(t *testing.T) {
	listens := regexp.MustCompile(`\.Listen(Unix)?\([^\n]*"unix`)
	for _, top := range []string{"../../internal", "../../cmd"} {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || path == "../../internal/socket/socket.go" {
				return err
			}
			text, err := os.ReadFile(path)
			if at := listens.Find(text); at != nil {
				t.Errorf("%s opens a Unix socket by itself: %s", path, at)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestFullBacklog: a socket is in use also while its server has no room for one more client.
func TestFullBacklog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for full := false; !full; {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "unix", path)
		if full = errors.Is(err, syscall.EAGAIN); err == nil {
			defer c.Close()
		} else if !full {
			t.Fatal(err)
		}
	}
	if _, _, err := socket.Claim(t.Context(), socket.ServerSocket{Path: path, Mode: 0o600, Key: "k", Program: "agent"}); !errors.Is(err, socket.ErrInUse) {
		t.Errorf("%v, want that it is in use", err)
	}
}
