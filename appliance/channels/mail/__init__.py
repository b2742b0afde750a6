"""Mail: reading and writing messages, what their receiving server proves of them, and the two servers."""
