// Package criclient is a client of CRI runtimes for all attachments. It reads lists and verbose statuses, and converts
// the CRI's messages to lifecycle types. It decides nothing, and stores no pods or containers.
package criclient
