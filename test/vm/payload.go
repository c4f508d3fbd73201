package vm

import (
	"context"
	"os"
	"path/filepath"
	"sync"
)

// payloadSize is fixed, because a snapshot depends on the size of the disk.
const payloadSize = 256 << 20

// payload is a disk with the programs of this checkout, made once per process. A snapshot does not depend
// on it, so a change of the code costs seconds and not a boot of every guest.
var payload = sync.OnceValues(func() (string, error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "ttpayload")
	if err != nil {
		return "", err
	}
	atEnd(func() { os.RemoveAll(dir) })
	folder := filepath.Join(dir, "payload")
	if err := os.Mkdir(folder, 0o755); err != nil {
		return "", err
	}
	printProgress("building the programs of this checkout")
	if err := goBuild(ctx, folder, ".", "./cmd/trimtab"); err != nil {
		return "", err
	}
	image := filepath.Join(dir, "payload.ext4")
	return image, ext4(ctx, folder, image, "256M")
})

// payloadDir is the mount point of the disk in a guest.
const payloadDir = "/payload"
