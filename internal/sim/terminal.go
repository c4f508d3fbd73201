package sim

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Terminal tells whether output to a file is to be coloured and how many
// columns it has, 0 where that is not known. Colour is for terminals whose user
// has not set NO_COLOR and whose TERM is not dumb.
func Terminal(f *os.File, env func(string) string) (color bool, width int) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err == nil {
		width = int(size.Col)
		color = env("NO_COLOR") == "" && env("TERM") != "dumb"
	}
	if width == 0 {
		width, _ = strconv.Atoi(env("COLUMNS"))
	}
	return color, max(width, 0)
}
