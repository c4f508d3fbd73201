package main

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// terminalWidth reports whether w is a terminal, and its width.
func terminalWidth(w io.Writer) (width int, ok bool) {
	f, isFile := w.(*os.File)
	if !isFile {
		return 0, false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	return int(size.Col), true
}

// useColors reports whether to use colours on w: only on terminals, and only if NO_COLOR is not set (no-color.org) and
// TERM is not dumb.
func useColors(w io.Writer) bool {
	_, ok := terminalWidth(w)
	return ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
