"""Commerce platforms to try the cart against: HTTP servers with the platforms' own shapes, and faults on command.

simulation      what both have in common: a clock, faults, dropped connections, the ledger
controls        `/_sim`, by which tests and people steer a simulator
salesforce      Salesforce B2C Commerce
shopify         Shopify Storefront and Admin
server          a simulator behind a port of this machine

They are processes of their own: what they know outlives a cart that is killed.
"""
