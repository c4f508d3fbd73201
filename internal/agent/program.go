package agent

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// A start reads most of the program once: what packages set up, tables of message
// types, names of all functions. Those pages stay mapped, some 20 MB, though hardly
// any is read again. forgetProgram unmaps them. A page that is read again is mapped
// again from the page cache, which keeps it while there is room.
func forgetProgram() error {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find the program: %w", err)
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("find the program in memory: %w", err)
	}
	defer f.Close()
	for _, m := range programIn(f, exe) {
		// Read-only and backed by the file: nothing can be lost.
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("give back the memory of the program at %x-%x: %w", m.from, m.to, errno)
		}
	}
	return nil
}

// mapping is a range of addresses.
type mapping struct{ from, to uintptr }

// programIn returns the mappings of a file that cannot be written to, from a
// text as /proc/PID/maps has it (proc(5)).
func programIn(maps io.Reader, file string) []mapping {
	var out []mapping
	for s := bufio.NewScanner(maps); s.Scan(); {
		var m mapping
		var rights, path string
		var offset, inode uint64
		var major, minor uint32
		n, err := fmt.Sscanf(s.Text(), "%x-%x %s %x %x:%x %d %s", &m.from, &m.to, &rights, &offset, &major, &minor, &inode, &path)
		if err == nil && n == 8 && path == file && !strings.Contains(rights, "w") && m.from < m.to {
			out = append(out, m)
		}
	}
	return out
}
