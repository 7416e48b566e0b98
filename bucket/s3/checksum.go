package s3

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"hash"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"gocloud.dev/blob"

	"github.com/rewind-kafka/rewind/bucket"
)

// checksum follows S3's ETag: the MD5 of an object that was put at once; the MD5 of the parts' MD5s, then "-" and their number, of one put in parts.
// With encryption by KMS, and at some stores, the ETag is something else. The SDK sends a CRC of its own with every part, which the store checks; this
// looks at the object as it lies there.
type checksum struct {
	partSize  int64
	whole     hash.Hash
	part      hash.Hash
	inPart    int64
	partSums  []byte
	partCount int
}

func newChecksum(partSize int64) bucket.Checksum {
	return &checksum{partSize: partSize, whole: md5.New(), part: md5.New()}
}

func (c *checksum) Write(p []byte) (int, error) {
	n := len(p)
	c.whole.Write(p)
	for len(p) > 0 {
		k := min(int64(len(p)), c.partSize-c.inPart)
		c.part.Write(p[:k])
		c.inPart += k
		p = p[k:]
		if c.inPart == c.partSize {
			c.endPart()
		}
	}
	return n, nil
}

func (c *checksum) endPart() {
	c.partSums = c.part.Sum(c.partSums)
	c.partCount++
	c.part.Reset()
	c.inPart = 0
}

func (c *checksum) Check(a *blob.Attributes) error {
	var head s3.HeadObjectOutput
	if a.As(&head) {
		switch head.ServerSideEncryption {
		case "", types.ServerSideEncryptionAes256:
		default:
			return nil
		}
	}
	etag := strings.Trim(a.ETag, `"`)
	sum, parts, inParts := strings.Cut(etag, "-")
	got, err := hex.DecodeString(sum)
	if err != nil || len(got) != md5.Size {
		return nil // not an MD5
	}
	want := c.whole.Sum(nil)
	if inParts {
		if c.inPart > 0 {
			c.endPart()
		}
		if parts != strconv.Itoa(c.partCount) {
			return nil // put in parts of another size
		}
		all := md5.Sum(c.partSums)
		want = all[:]
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("ETag %s, sent %x", etag, want)
	}
	return nil
}
