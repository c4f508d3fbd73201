package agent

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseProgramPages unmaps the pages of the program file, about 20 MB. The agent reads most of them only at its
// start. When a page is used again, the kernel maps it from the page cache or reads it from the disk.
func releaseProgramPages() error {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find the program's file: %w", err)
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("find the program in memory: %w", err)
	}
	defer f.Close()
	for _, m := range programMappings(f, exe) {
		// The pages are read-only and backed by the file, so no data is lost.
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("return the memory of the program at %x-%x: %w", m.from, m.to, errno)
		}
	}
	return nil
}

// addressRange is a range of memory addresses.
type addressRange struct{ from, to uintptr }

// programMappings returns the read-only mappings of a file in the text of /proc/PID/maps (proc(5)).
func programMappings(maps io.Reader, file string) []addressRange {
	var out []addressRange
	for s := bufio.NewScanner(maps); s.Scan(); {
		var m addressRange
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
