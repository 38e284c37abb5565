"""Platforms behind `telecom_cart.provider`: Salesforce B2C Commerce, Shopify Storefront, a double."""
